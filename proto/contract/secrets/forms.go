package secrets

import (
	"bytes"
	"encoding/base64"
	"strings"
)

// form is one form of secrets.
type form struct {
	// begins has the bytes that each of the first four may be.
	begins [stride + 1]string
	// match looks at the text around the four bytes at an offset. It returns the kind and where the
	// secret begins; an empty kind: it is none.
	match func(text []byte, at int) (Kind, int)
}

// Characters of secrets.
const (
	upper     = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	alnum     = upper + "abcdefghijklmnopqrstuvwxyz0123456789"
	base64URL = alnum + "-_"
	base64Any = alnum + "+/-_"
	// base64JSON may have an escape before a slash.
	base64JSON = alnum + `+/=\`
)

// Lengths of secrets without their beginnings.
const (
	awsLength    = 16
	googleLength = 35
	runlogLength = 43
	githubLength = 36

	minLength = 20 // of tokens without a length of their own
	minAzure  = 40
	minJWT    = 10 // of each part
	minPEM    = 32 // of base64 in the pemWindow bytes after the first line
	pemWindow = 160
	// A wrapped key has its first line in the first 64 characters, and a part of the key.
	wrappedHead = 64
	minWrapped  = 112
)

// The forms have room in 64 bits: stride bits each.
var forms = [...]form{
	{[4]string{"A", "KS", "I", "A"}, exactly(AWSKey, upper+"234567", awsLength, alnum)},
	{[4]string{"A", "I", "z", "a"}, exactly(GoogleKey, base64URL, googleLength, base64URL)},
	{[4]string{"y", "a", "2", "9"}, matchGoogleToken},
	{[4]string{"r", "l", "jkw", "_"}, exactly(RunlogToken, base64URL, runlogLength, base64URL)},
	{[4]string{"g", "h", "pousr", "_"}, exactly(GitHubToken, alnum, githubLength, base64URL)},
	{[4]string{"u", "b", "_", "p"}, matchGitHubToken},
	{[4]string{"e", "y", "J", alnum}, matchJWT},
	{[4]string{"Bb", "Ee", "Aa", "Rr"}, matchBearer},
	{[4]string{"P", "R", "I", "V"}, matchPrivateKey},
	{[4]string{"L", "S", "0", "t"}, matchWrappedKey},
	{[4]string{"ts", "K", "e", "y"}, matchAzure},
}

func (f *form) beginsAt(text []byte, at int) bool {
	if at+len(f.begins) > len(text) {
		return false
	}
	for i, chars := range f.begins {
		if strings.IndexByte(chars, text[at+i]) < 0 {
			return false
		}
	}
	return true
}

// run returns how many of the bytes at an offset are of some characters, at most limit.
func run(text []byte, at int, chars string, limit int) int {
	n := 0
	for n < limit && at+n < len(text) && strings.IndexByte(chars, text[at+n]) >= 0 {
		n++
	}
	return n
}

// begins reports whether a word begins at an offset: the byte before is none of its characters. An
// escape of JSON, such as that of a line break, ends the word before.
func begins(text []byte, at int, chars string) bool {
	return at == 0 || run(text, at-1, chars, 1) == 0 || at > 1 && text[at-2] == '\\'
}

// exactly matches a word of the four bytes and so many more.
func exactly(kind Kind, chars string, length int, word string) func([]byte, int) (Kind, int) {
	return func(text []byte, at int) (Kind, int) {
		end := at + stride + 1 + length
		if !begins(text, at, word) || run(text, at+stride+1, chars, length) < length || run(text, end, word, 1) > 0 {
			return "", 0
		}
		return kind, at
	}
}

// after matches a prefix, of which the four bytes at an offset are the end, or a part before rest.
func after(text []byte, at int, before, rest string) (from, end int, ok bool) {
	from, end = at-len(before), at+stride+1+len(rest)
	ok = from >= 0 && end <= len(text) && string(text[from:at]) == before && string(text[at+stride+1:end]) == rest
	return from, end, ok
}

// matchGoogleToken matches an access token: ya29. and more.
func matchGoogleToken(text []byte, at int) (Kind, int) {
	_, end, ok := after(text, at, "", ".")
	if !ok || !begins(text, at, base64URL) || run(text, end, base64URL, minLength) < minLength {
		return "", 0
	}
	return GoogleKey, at
}

// matchGitHubToken matches github_pat_ and more.
func matchGitHubToken(text []byte, at int) (Kind, int) {
	from, end, ok := after(text, at, "gith", "at_")
	if !ok || run(text, end, alnum+"_", githubLength) < githubLength {
		return "", 0
	}
	return GitHubToken, from
}

// matchJWT matches two JSON objects in base64, and a signature. One without a signature is no
// credential.
func matchJWT(text []byte, at int) (Kind, int) {
	if !begins(text, at, base64URL) {
		return "", 0
	}
	end := at
	for part := range 3 {
		n := run(text, end, base64URL, len(text))
		object := part == 2 || bytes.HasPrefix(text[end:], []byte("eyJ"))
		if n < minJWT || !object {
			return "", 0
		}
		end += n
		if part == 2 {
			break
		}
		if end == len(text) || text[end] != '.' {
			return "", 0
		}
		end++
	}
	return JWT, at
}

// matchBearer matches the value of an Authorization header. A token has a digit; a word of prose
// has none.
func matchBearer(text []byte, at int) (Kind, int) {
	_, end, ok := after(text, at, "", "er ")
	if !ok {
		_, end, ok = after(text, at, "", "ER ")
	}
	if !ok || !begins(text, at, alnum) {
		return "", 0
	}
	n := run(text, end, base64JSON+"-._~", len(text))
	if n < minLength || !bytes.ContainsAny(text[end:end+n], "0123456789") {
		return "", 0
	}
	return BearerToken, at
}

// matchPrivateKey matches the first line of a private key as PEM, with a key after it.
func matchPrivateKey(text []byte, at int) (Kind, int) {
	const begin, dashes = "-----BEGIN ", "-----"
	from := bytes.LastIndex(text[max(0, at-40):at], []byte(begin))
	_, end, ok := after(text, at, "", "ATE KEY")
	if from < 0 || !ok {
		return "", 0
	}
	from += max(0, at-40)
	if bytes.HasPrefix(text[end:], []byte(" BLOCK")) { // OpenPGP
		end += len(" BLOCK")
	}
	if run(text, from+len(begin), upper+"0123456789 ", at) < at-from-len(begin) || !bytes.HasPrefix(text[end:], []byte(dashes)) {
		return "", 0
	}
	end += len(dashes)
	key := 0
	for _, c := range text[end:min(end+pemWindow, len(text))] {
		if c == '"' || c == '-' {
			break
		}
		if strings.IndexByte(base64JSON, c) >= 0 {
			key++
		}
	}
	if key < minPEM {
		return "", 0
	}
	return PrivateKey, from
}

// matchWrappedKey matches a private key as PEM in base64, as in a secret of Kubernetes.
func matchWrappedKey(text []byte, at int) (Kind, int) {
	_, _, ok := after(text, at, "", "LS1CRUdJTi") // with LS0t: -----BEGIN
	n := run(text, at, base64Any, minWrapped)
	if !ok || !begins(text, at, base64Any) || n < minWrapped {
		return "", 0
	}
	var line [wrappedHead / 4 * 3]byte
	// It stops at what is no base64: the first line may be shorter than its window.
	n, _ = base64.StdEncoding.Decode(line[:], text[at:at+wrappedHead])
	if !bytes.Contains(line[:n], []byte("PRIVATE"+" KEY")) {
		return "", 0
	}
	return PrivateKey, at
}

// matchAzure matches the key in a connection string.
func matchAzure(text []byte, at int) (Kind, int) {
	from, end, ok := after(text, at, "Accoun", "=")
	if text[at] == 's' {
		from, end, ok = after(text, at, "SharedAcces", "=")
	}
	if !ok || run(text, end, base64JSON, minAzure) < minAzure {
		return "", 0
	}
	return AzureKey, from
}
