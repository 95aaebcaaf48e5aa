package peer

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Reason is the code of a refusal. It is part of the protocol, and never changes.
type Reason string

const (
	// ForeignCluster means that the two nodes belong to different clusters.
	ForeignCluster Reason = "FOREIGN_CLUSTER"
	// FormatVersion means that the two builds use different formats.
	FormatVersion Reason = "FORMAT_VERSION"
	// NotAMember means that a node is not a member, or Admit gave no other reason.
	NotAMember Reason = "NOT_A_MEMBER"
	// NodeIDTaken means that another member, with other data, has the node's name.
	NodeIDTaken Reason = "NODE_ID_TAKEN"
	// IdentityMismatch means that a certificate names another node, or another node answers at the
	// address.
	IdentityMismatch Reason = "IDENTITY_MISMATCH"
	// Certificate means that a certificate is expired, not valid yet, of another authority, or
	// missing.
	Certificate Reason = "CERTIFICATE"
	// Protocol means that the other end is not a runlog node, or only one end uses TLS.
	Protocol Reason = "PROTOCOL"
	// NotServing means that the accepting end has no listener for the kind at the moment. A
	// retry helps.
	NotServing Reason = "NOT_SERVING"
)

// reasons bounds the values of a metric's label: the other end may send any text.
var reasons = []Reason{
	ForeignCluster, FormatVersion, NotAMember, NodeIDTaken, IdentityMismatch, Certificate, Protocol, NotServing,
}

// RefusedError means that one end refused the other.
type RefusedError struct {
	Reason Reason
	// Message is the cause and the remedy, for both ends.
	Message string
	// Address of the other end; empty if the error is not about a connection.
	Address string
	// Remote: the other end refused this one.
	Remote bool
}

func (e *RefusedError) Error() string {
	switch {
	case e.Address == "":
		return fmt.Sprintf("peer: %s: %s", e.Reason, e.Message)
	case e.Remote:
		return fmt.Sprintf("peer: %s refuses this node: %s: %s", e.Address, e.Reason, e.Message)
	}
	return fmt.Sprintf("peer: %s is refused: %s: %s", e.Address, e.Reason, e.Message)
}

// refuse makes a refusal of this end.
func refuse(reason Reason, format string, args ...any) *RefusedError {
	return &RefusedError{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// asRefusal turns Admit's error into a refusal for the other end.
func asRefusal(err error) *RefusedError {
	if e, ok := errors.AsType[*RefusedError](err); ok {
		return &RefusedError{Reason: e.Reason, Message: e.Message}
	}
	return &RefusedError{Reason: NotAMember, Message: err.Error()}
}

// plain reports whether a text is printable.
func plain(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// clip returns a printable text of at most n bytes.
func clip(s string, limit int) string {
	s = strings.ToValidUTF8(s, "?")
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
	if len(s) <= limit {
		return s
	}
	s = s[:limit]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s
}
