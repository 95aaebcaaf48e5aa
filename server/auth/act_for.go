package auth

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"runlog/proto/contract"
)

// maxActFor bounds the identities in whose names one credential may attest.
const maxActFor = 100

// tokenKind begins the names of the identities of API tokens.
const tokenKind = "token:"

// TokenIdentity returns the name of the identity of an API token.
func TokenIdentity(name string) string { return tokenKind + name }

// tokenNames are short and can be distinguished in a log.
var tokenNames = regexp.MustCompile(`^[a-zA-Z0-9._@-]{1,64}$`)

// AdminTokenName is the name of the token that a node has in a file of its own. The cluster does
// not store it.
const AdminTokenName = "admin-token-file"

// TokenNameFault says why an API token cannot have a name; empty: it can.
func TokenNameFault(name string) string {
	if !tokenNames.MatchString(name) {
		return "must have 1 to 64 characters of a-z, A-Z, 0-9, '.', '_', '-' and '@'"
	}
	return ""
}

// IdentityFault says why no attestation can be in a name; empty: one can (SEC-10). It takes the
// names of identities, and those of people that have no credential.
func IdentityFault(name string) string {
	switch token, is := strings.CutPrefix(name, tokenKind); {
	case name == AllNames:
		return "is " + contract.Quote(name) + ", which stands for all identities: name one"
	case name == Local.Name:
		return "is " + contract.Quote(name) + ", the identity of callers without access control: name another"
	case is && TokenNameFault(token) != "":
		return "is the name of no token, which " + TokenNameFault(token)
	}
	return contract.TrimmedFault(name)
}

// ActForOf returns the identities in whose names a credential may attest, sorted and without
// repetition (SEC-10). It calls fault with each fault and its place: that of a name, such as [2],
// or empty for the list.
func ActForOf(names []string, fault func(place, wrong string)) []string {
	sorted := slices.Compact(slices.Sorted(slices.Values(names)))
	if len(sorted) > maxActFor {
		fault("", fmt.Sprintf("has %d identities, at most %d", len(sorted), maxActFor))
	}
	for i, name := range names {
		wrong := IdentityFault(name)
		if name == AllNames {
			if wrong = ""; len(sorted) > 1 {
				wrong = "is " + contract.Quote(name) + " beside others: name all identities alone"
			}
		}
		if wrong != "" {
			fault(fmt.Sprintf("[%d]", i), wrong)
		}
	}
	return sorted
}
