package peer

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Reason is why one node refused another. It is told over the wire, and never changes.
type Reason string

const (
	// ForeignCluster says that the two nodes belong to different clusters.
	ForeignCluster Reason = "FOREIGN_CLUSTER"
	// FormatVersion says that the two builds do not understand each other.
	FormatVersion Reason = "FORMAT_VERSION"
	// NotAMember says that a node is not in the list of members, or that Admit gave no other
	// reason.
	NotAMember Reason = "NOT_A_MEMBER"
	// NodeIDTaken says that another member, with other data, has the node's name.
	NodeIDTaken Reason = "NODE_ID_TAKEN"
	// IdentityMismatch says that a certificate names another node, or that another node answers at
	// the address.
	IdentityMismatch Reason = "IDENTITY_MISMATCH"
	// Certificate says that a certificate is expired, not valid yet, of another authority, or not
	// there.
	Certificate Reason = "CERTIFICATE"
	// Protocol says that the other end is no runlog node, or one with TLS where this one has none,
	// or the reverse.
	Protocol Reason = "PROTOCOL"
	// NotServing says that nobody at the accepting end takes connections of the kind at the moment;
	// trying again helps.
	NotServing Reason = "NOT_SERVING"
)

// reasons bounds what a metric's label may be: the other end may say anything.
var reasons = []Reason{
	ForeignCluster, FormatVersion, NotAMember, NodeIDTaken, IdentityMismatch, Certificate, Protocol, NotServing,
}

// RefusedError tells that one end refused the other.
type RefusedError struct {
	Reason Reason
	// Message says what is wrong and what to do, in words that both ends can show.
	Message string
	// Address of the other end; empty where the error is not about a connection.
	Address string
	// Remote says that the other end refused this one.
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

// asRefusal is what Admit's error means for the other end.
func asRefusal(err error) *RefusedError {
	if e, ok := errors.AsType[*RefusedError](err); ok {
		return &RefusedError{Reason: e.Reason, Message: e.Message}
	}
	return &RefusedError{Reason: NotAMember, Message: err.Error()}
}

// plain says that a text can be shown as it is.
func plain(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// clip makes a text one that fits into so many bytes and can be shown as it is.
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
