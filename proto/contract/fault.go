package contract

import (
	"cmp"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// NameFault says why a write cannot use s as an id or a name such as runId or planId; empty when it
// can. A name is 1 to 256 bytes of UTF-8 without a control character, without white space at its
// begin or end, and without the vertical bar, which separates the parts of the idempotency key
// (ENV-3). It is neither "." nor "..", because clients take these out of a URL (ENV-13).
func NameFault(s string) string {
	if plain(s) && s[0] != ' ' && s[len(s)-1] != ' ' && dotFault(s) == "" {
		return ""
	}
	return cmp.Or(dotFault(s), StoredNameFault(s))
}

func dotFault(s string) string {
	if s == "." || s == ".." {
		return "is " + Quote(s) + ", which a URL cannot contain as a name: choose another"
	}
	return ""
}

// StepFault is NameFault for a stepId. The step RUN would have the keys of events without a step.
func StepFault(s string) string {
	if s == runStep {
		return "is " + runStep + ", which stands for no step in idempotency keys: choose another"
	}
	return NameFault(s)
}

// AllTenants stands for all tenants where a call names tenants.
const AllTenants = "*"

// TenantFault is ScopeFault for a tenantId. The tenant "*" would be taken for all tenants.
func TenantFault(s string) string {
	if s == AllTenants {
		return "is " + Quote(s) + ", which stands for all tenants: choose another"
	}
	return ScopeFault(s)
}

// ScopeFault says why a write cannot use s as the tenant, the project or the environment of a run;
// empty when it can. It is a text of the envelope, and neither "." nor ".." (ENV-13).
func ScopeFault(s string) string { return cmp.Or(dotFault(s), StoredScopeFault(s)) }

// StoredScopeFault is StoredNameFault for a tenant, a project and an environment.
func StoredScopeFault(s string) string {
	if s == "" {
		return "is required"
	}
	return TextFault(s)
}

// LabelFault says why a write cannot use s as the name of a label; empty when it can. It is a text
// of the envelope without white space, comma and equals sign, which end it in lists of labels
// (ENV-13).
func LabelFault(s string) string {
	if s == "" {
		return "is required"
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r == '=' || r == ',' || unicode.IsSpace(r) }) {
		return "contains white space, a comma or an equals sign, which end the name in a list of labels: remove them"
	}
	return TextFault(s)
}

// StoredNameFault says why nothing that is stored can have the name s; empty when something can. It
// is for reads, which also find what had a name before ENV-13.
func StoredNameFault(s string) string {
	if strings.IndexByte(s, '|') >= 0 {
		return "contains a vertical bar, which separates the parts of the idempotency key: use another character"
	}
	return TrimmedFault(s)
}

// TrimmedFault says why s is no text of the envelope that begins and ends with what is no white
// space; empty when it is one.
func TrimmedFault(s string) string {
	if s == "" {
		return "is required"
	}
	if fault := TextFault(s); fault != "" {
		return fault
	}
	first, _ := utf8.DecodeRuneInString(s)
	last, _ := utf8.DecodeLastRuneInString(s)
	switch {
	case unicode.IsSpace(first):
		return fmt.Sprintf("begins with the white space %U: remove it", first)
	case unicode.IsSpace(last):
		return fmt.Sprintf("ends with the white space %U: remove it", last)
	}
	return ""
}

// NotUTF8 says what is wrong with text in another encoding.
const NotUTF8 = "is not valid UTF-8: encode all text as UTF-8"

// TextFault says why s cannot be a text of the envelope, which is at most 256 bytes of UTF-8
// without control characters; empty when it can.
func TextFault(s string) string {
	if s == "" || plain(s) {
		return ""
	}
	if len(s) > maxTextBytes {
		return fmt.Sprintf("is %d bytes long: send at most %d", len(s), maxTextBytes)
	}
	if !utf8.ValidString(s) {
		return NotUTF8
	}
	for i, r := range s {
		if unicode.IsControl(r) {
			return fmt.Sprintf("contains the control character %U at byte %d: remove it", r, i)
		}
	}
	return ""
}

// plain reports whether s is 1 to 256 bytes of printable ASCII without a vertical bar, as nearly
// all names and texts are. An event has a dozen of them, so plain looks at 8 bytes at a time:
// https://graphics.stanford.edu/~seander/bithacks.html#ZeroInWord.
func plain(s string) bool {
	const (
		ones  = 0x0101010101010101
		highs = 0x80 * ones
	)
	if s == "" || len(s) > maxTextBytes {
		return false
	}
	for ; len(s) >= 8; s = s[8:] {
		x := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
		bar := x ^ '|'*ones
		// The last term demands bytes below 0x80. Among those, each of the others sets the high bit
		// of a byte that is below 0x20, of 0x7f, and of a vertical bar.
		if ((x-0x20*ones)|(x+ones)|(bar-ones)|x)&highs != 0 {
			return false
		}
	}
	for i := range len(s) {
		if s[i] < 0x20 || s[i] >= 0x7f || s[i] == '|' {
			return false
		}
	}
	return true
}
