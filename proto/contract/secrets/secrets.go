// Package secrets finds texts that look like credentials: private keys, keys of clouds, bearer
// tokens. It finds what got into a payload by accident. It does not find a secret that a producer
// hides, nor one without a form of its own, such as a password.
//
// Each form begins with four bytes that few other texts have. Find looks at two bytes of every
// three, and compares a form only where its bytes may be.
//
//	b y t e s   o f   a   p a y l o a d
//	^^    ^^    ^^    ^^                    a form of four bytes covers one of these pairs
package secrets

// Kind is what a text looks like.
type Kind string

// The kinds that Find knows.
const (
	PrivateKey  Kind = "private-key"
	AWSKey      Kind = "aws-key"
	GoogleKey   Kind = "gcp-key"
	AzureKey    Kind = "azure-key"
	RunlogToken Kind = "runlog-token"
	GitHubToken Kind = "github-token"
	JWT         Kind = "jwt"
	BearerToken Kind = "bearer-token"
)

// Kinds returns all kinds.
func Kinds() []Kind {
	return []Kind{PrivateKey, AWSKey, GoogleKey, AzureKey, RunlogToken, GitHubToken, JWT, BearerToken}
}

// stride is the distance of the pairs that Find looks at: a form of four bytes has three pairs, and
// covers one at each distance.
const stride = 3

// first and second have a bit for each pair of each form: a text may have the pair if both of its
// bytes have the bit.
var first, second = tables()

func tables() (first, second [256]uint64) {
	for f := range forms {
		for pair := range stride {
			bit := uint64(1) << (f*stride + pair)
			for _, c := range []byte(forms[f].begins[pair]) {
				first[c] |= bit
			}
			for _, c := range []byte(forms[f].begins[pair+1]) {
				second[c] |= bit
			}
		}
	}
	return first, second
}

// Find returns the kind of the first secret in a text and its offset; an empty kind: there is none.
// A text of JSON is looked at as it is written.
func Find(text []byte) (Kind, int) {
	i := 0
	for ; i+8 <= len(text); i += 3 * stride {
		w := text[i : i+8 : i+8]
		if first[w[0]]&second[w[1]]|first[w[3]]&second[w[4]]|first[w[6]]&second[w[7]] == 0 {
			continue
		}
		for at := i; at < i+3*stride; at += stride {
			if kind, from := findAt(text, at); kind != "" {
				return kind, from
			}
		}
	}
	for ; i+1 < len(text); i += stride {
		if kind, from := findAt(text, i); kind != "" {
			return kind, from
		}
	}
	return "", 0
}

// findAt compares the forms whose beginning may cover the pair at an offset.
func findAt(text []byte, at int) (Kind, int) {
	if at+1 >= len(text) {
		return "", 0
	}
	may := first[text[at]] & second[text[at+1]]
	for f := 0; may != 0; f, may = f+1, may>>stride {
		for pair := range stride {
			begin := at - pair
			if may&(1<<pair) == 0 || begin < 0 || !forms[f].beginsAt(text, begin) {
				continue
			}
			if kind, from := forms[f].match(text, begin); kind != "" {
				return kind, from
			}
		}
	}
	return "", 0
}
