package secret

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"runlog/proto/contract/jsontext"
)

// Redactor replaces secrets in texts. A nil Redactor changes nothing. It is safe for concurrent
// use.
type Redactor struct {
	mark    string
	longest int
	pairs   [1 << 16 / 64]uint64  // the first two bytes of patterns: most places have none
	begins  map[uint32][]*pattern // by the first four bytes, the longest one first
}

// Format prints nothing of the secrets for each verb.
func (r *Redactor) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "redactor") }

// pattern is a text to replace.
type pattern struct {
	text string
	form Form
	ref  string
}

// head is how many bytes of a pattern its place in a map has: the length of the shortest one.
const head = MinBytes

func newRedactor(values map[string]string) (*Redactor, error) {
	all := map[string]*pattern{}
	for _, ref := range slices.Sorted(maps.Keys(values)) {
		for text, form := range formsOf(values[ref]) {
			if p, known := all[text]; !known || p.form != Raw && form == Raw {
				all[text] = &pattern{text, form, ref}
			}
		}
	}
	texts := slices.Sorted(maps.Keys(all))
	r := &Redactor{begins: map[uint32][]*pattern{}}
	for _, text := range texts {
		pair, first := binary.LittleEndian.Uint16([]byte(text)), binary.LittleEndian.Uint32([]byte(text))
		r.pairs[pair/64] |= 1 << (pair % 64)
		r.begins[first] = append(r.begins[first], all[text])
		r.longest = max(r.longest, len(text))
	}
	for _, patterns := range r.begins {
		slices.SortFunc(patterns, func(a, b *pattern) int { return len(b.text) - len(a.text) })
	}
	var ok bool
	if r.mark, ok = markFor(texts); !ok {
		return nil, errors.New("secret: the values have no mark that can replace them: use texts for secrets")
	}
	return r, nil
}

// markFor returns a text that replaces patterns, such that neither it nor what it forms together
// with its neighbours is a pattern.
func markFor(texts []string) (string, bool) {
	if isMark(hidden, texts) {
		return hidden, true
	}
	const first = "*#=~-_.+!?%&/:;,@$^|<>()[]{}"
	for _, c := range []byte(first) {
		if mark := strings.Repeat(string(c), len(hidden)); isMark(mark, texts) {
			return mark, true
		}
	}
	// Binary values may use up all of these. A longer mark is in none of the patterns.
	long := 0
	for _, text := range texts {
		long = max(long, len(text))
	}
	for c := range 256 {
		if mark := strings.Repeat(string([]byte{byte(c)}), long+1); isMark(mark, texts) {
			return mark, true
		}
	}
	return "", false
}

// isMark checks that no pattern is within the mark, has the mark, begins with an end of the mark,
// or ends with a beginning of the mark.
func isMark(mark string, texts []string) bool {
	for _, text := range texts {
		if strings.Contains(text, mark) || strings.Contains(mark, text) {
			return false
		}
		for n := 1; n <= min(len(mark), len(text)); n++ {
			if text[:n] == mark[len(mark)-n:] || text[len(text)-n:] == mark[:n] {
				return false
			}
		}
	}
	return true
}

// at returns the longest pattern that begins at an offset.
func (r *Redactor) at(text []byte, at int) *pattern {
	for _, p := range r.begins[binary.LittleEndian.Uint32(text[at:])] {
		if len(text)-at >= len(p.text) && string(text[at:at+len(p.text)]) == p.text {
			return p
		}
	}
	return nil
}

// next returns the first offset from a given one, before limit, at which a pattern begins.
func (r *Redactor) next(text []byte, from, limit int) (*pattern, int) {
	for limit = min(limit, len(text)-head+1); from < limit; from++ {
		pair := uint16(text[from]) | uint16(text[from+1])<<8
		if r.pairs[pair/64]&(1<<(pair%64)) == 0 {
			continue
		}
		if p := r.at(text, from); p != nil {
			return p, from
		}
	}
	return nil, max(from, limit)
}

// redact appends text to dst up to limit, with marks. Patterns that overlap have one mark. The
// first covered bytes of the text belong to a pattern that has its mark. It returns how many bytes
// after limit do.
func (r *Redactor) redact(dst, text []byte, covered, limit int) ([]byte, int) {
	end := covered // of the secret
	for from := 0; ; {
		p, at := r.next(text, from, limit)
		if p == nil {
			break
		}
		if at >= end {
			dst = append(append(dst, text[end:at]...), r.mark...)
		}
		end, from = max(end, at+len(p.text)), at+1
	}
	if end < limit {
		dst, end = append(dst, text[end:limit]...), limit
	}
	return dst, end - limit
}

// Bytes returns a text with its secrets replaced. It may return the text itself.
func (r *Redactor) Bytes(text []byte) []byte {
	if r == nil {
		return text
	}
	if p, _ := r.next(text, 0, len(text)); p == nil {
		return text
	}
	out, _ := r.redact(nil, text, 0, len(text))
	return out
}

// Text is Bytes for a string.
func (r *Redactor) Text(text string) string { return string(r.Bytes([]byte(text))) }

// JSON returns a JSON text with its secrets replaced, as JSON. A secret is found however its
// characters are escaped. A number that has a secret becomes a string. A value that has a secret
// otherwise, such as one that is an object, becomes a string as a whole. A text that is no JSON is
// treated as by Bytes.
func (r *Redactor) JSON(text []byte) []byte {
	if r == nil || len(r.begins) == 0 {
		return text
	}
	if !json.Valid(text) {
		return r.Bytes(text)
	}
	var out []byte
	for at := 0; at < len(text); {
		end := tokenEnd(text, at)
		token := text[at:end]
		switch {
		case token[0] == '"':
			inside := jsontext.AppendUnquoted(nil, token)
			if clean := r.Bytes(inside); !bytes.Equal(clean, inside) {
				token = jsontext.AppendQuoted(nil, string(clean))
			}
		case isNumber(token[0]):
			if clean := r.Bytes(token); !bytes.Equal(clean, token) {
				token = jsontext.AppendQuoted(nil, string(clean))
			}
		}
		out, at = append(out, token...), end
	}
	if len(r.Scan(out)) > 0 {
		return jsontext.AppendQuoted(nil, r.mark)
	}
	return out
}

// tokenEnd returns the end of the string, the number or the byte at an offset of a JSON text.
func tokenEnd(text []byte, at int) int {
	end := at + 1
	switch {
	case text[at] == '"':
		end = jsontext.SkipString(text, at)
	case isNumber(text[at]):
		for end < len(text) && (isNumber(text[end]) || strings.IndexByte("+.eE", text[end]) >= 0) {
			end++
		}
	}
	return end
}

func isNumber(c byte) bool { return c == '-' || '0' <= c && c <= '9' }

// Finding is a secret in a text.
type Finding struct {
	// Ref is the reference of the secret.
	Ref string
	// Form is how the text has it.
	Form Form
	// Offset is where it begins.
	Offset int
}

// maxFindings bounds what Scan returns.
const maxFindings = 100

// Scan returns the first 100 secrets in a text.
func (r *Redactor) Scan(text []byte) []Finding {
	if r == nil {
		return nil
	}
	var found []Finding
	for from := 0; len(found) < maxFindings; {
		p, at := r.next(text, from, len(text))
		if p == nil {
			break
		}
		found, from = append(found, Finding{p.ref, p.form, at}), at+1
	}
	return found
}
