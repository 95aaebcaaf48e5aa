package auth

import (
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"regexp"
	"strings"
)

// subjectPattern matches the subjects of certificates, part by part: what a certificate has within
// one attribute never counts as another.
type subjectPattern []*regexp.Regexp

// parseSubject reads a pattern such as CN=engine-*,O=acme.
func parseSubject(text string) (p subjectPattern, err error) {
	for _, part := range splitSubject(text) {
		if name, value, ok := strings.Cut(part, "="); !ok || strings.Trim(name, ",+ ") == "" || strings.TrimSpace(value) == "" {
			return nil, errors.New("each part needs a name, = and a value")
		}
		// Quoted, no pattern is invalid.
		p = append(p, regexp.MustCompile("(?s)^"+strings.ReplaceAll(regexp.QuoteMeta(part), `\*`, ".*")+"$"))
	}
	if len(p) == 0 {
		return nil, errors.New("it is empty")
	}
	return p, nil
}

// matches reports whether a subject, in the form of RFC 2253, has exactly the parts of the pattern.
func (p subjectPattern) matches(subject string) bool {
	parts := splitSubject(subject)
	if len(parts) != len(p) {
		return false
	}
	for i, part := range parts {
		if !p[i].MatchString(part) {
			return false
		}
	}
	return true
}

// hidesNames reports whether a subject has several of an attribute of which pkix.Name keeps the
// last alone: a rule would not see the others.
func hidesNames(names []pkix.AttributeTypeAndValue) bool {
	commonNames, serialNumbers := 0, 0
	for _, n := range names {
		switch {
		case n.Type.Equal(oidCommonName):
			commonNames++
		case n.Type.Equal(oidSerialNumber):
			serialNumbers++
		}
	}
	return commonNames > 1 || serialNumbers > 1
}

// Attributes of subjects (RFC 5280, section 4.1.2.4).
var oidCommonName, oidSerialNumber = asn1.ObjectIdentifier{2, 5, 4, 3}, asn1.ObjectIdentifier{2, 5, 4, 5}

// splitSubject splits a subject before each comma and plus that is not escaped.
func splitSubject(text string) (parts []string) {
	begin := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case ',', '+':
			parts = append(parts, text[begin:i])
			begin = i
		}
	}
	if begin < len(text) {
		parts = append(parts, text[begin:])
	}
	return parts
}
