// Package join is the machine of what lets nodes become members: join tokens, and the admissions
// that they give.
//
//	J tokenId     a token                  record.v1.JoinToken
//	K hash:32     the id of that token     text
//	L raftId      an admission             record.v1.Admission
//
// An admission lets one node, which has one data directory, become a member once:
//
//	token used ──┐
//	             ├─> admission ──> the node is a member; the admission is deleted
//	invitation ──┘       │
//	                     └───────> it ends by its time, or with the revocation of its token
//
// Invariants: a token's text is stored nowhere, only its SHA-256. used ≤ uses. A node with an
// admission uses no token up, so that a node that tries again needs no second use.
package join

import (
	"fmt"
	"time"

	"runlog/proto/contract"
	recordv1 "runlog/proto/record/v1"
	"runlog/storage"
)

// Kind of the machine.
const Kind = 20

const (
	tokenTable     = "J"
	hashTable      = "K"
	admissionTable = "L"
)

const (
	// MaxTokens bounds how many tokens are kept.
	MaxTokens = 1000
	// keepExpired is how long a token is listed after its end.
	keepExpired = 30 * 24 * time.Hour
)

// Machine is the storage.Machine of this package.
type Machine struct{}

var _ storage.Machine = Machine{}

// Kind implements storage.Machine.
func (Machine) Kind() uint32 { return Kind }

// Tables implements storage.Machine.
func (Machine) Tables() []storage.Table {
	return []storage.Table{
		{Prefix: []byte(tokenTable), Name: "join tokens"},
		{Prefix: []byte(hashTable), Name: "join tokens by their hash"},
		{Prefix: []byte(admissionTable), Name: "admissions of nodes"},
	}
}

// Level implements storage.Machine.
func (Machine) Level([]byte) uint32 { return storage.CoreLevel }

// Token is a join token.
type Token struct {
	ID        string
	Hash      [32]byte // SHA-256 of the token's text
	Uses      uint32   // how many nodes it admits
	ExpiresAt int64    // nanoseconds
	CreatedBy contract.Author
	// Used, CreatedAt, RevokedAt and RevokedBy are set by apply; RevokedAt 0: it is not revoked.
	Used                 uint32
	CreatedAt, RevokedAt int64
	RevokedBy            contract.Author
}

// Fault returns why a token admits no node at a time; empty: it admits one.
func (t *Token) Fault(now int64) Why {
	switch {
	case t.RevokedAt != 0:
		return Revoked
	case t.ExpiresAt <= now:
		return Expired
	case t.Used >= t.Uses:
		return UsedUp
	}
	return ""
}

// Why says why a token admits no node.
type Why string

// The reasons.
const (
	Unknown Why = "is not known here"
	Revoked Why = "is revoked"
	Expired Why = "is expired"
	UsedUp  Why = "is used up"
)

// RefusedError says that a token does not admit a node.
type RefusedError struct{ Why Why }

func (e *RefusedError) Error() string { return "the join token " + string(e.Why) }

// NotFoundError says that there is no token with an id.
type NotFoundError struct{ ID string }

func (e *NotFoundError) Error() string { return fmt.Sprintf("there is no join token %q", e.ID) }

// ErrTooMany refuses one more token than MaxTokens.
var ErrTooMany = fmt.Errorf("there are %d join tokens that ended less than %d days ago or not at all", MaxTokens, keepExpired/(24*time.Hour))

// PutToken is the operation that stores a new token. It is refused with ErrTooMany. It deletes
// tokens that expired long ago.
func PutToken(t *Token) (storage.Operation, error) {
	return storage.EncodeOperation(Kind, &recordv1.JoinOperation{Kind: &recordv1.JoinOperation_PutToken{PutToken: &recordv1.JoinToken{
		TokenId: t.ID, Hash: t.Hash[:], Uses: t.Uses, ExpiresAt: t.ExpiresAt,
		CreatedBy: t.CreatedBy.Name, CreatedByTokenId: t.CreatedBy.TokenID,
	}}})
}

// RevokeToken is the operation that ends a token, and the admissions that it gave to nodes that are
// no members yet. It is refused with a *NotFoundError. A token that is revoked stays as it is.
func RevokeToken(id string, by contract.Author) (storage.Operation, error) {
	return storage.EncodeOperation(Kind, &recordv1.JoinOperation{Kind: &recordv1.JoinOperation_RevokeToken{
		RevokeToken: &recordv1.RevokeJoinToken{TokenId: id, RevokedBy: by.Name, RevokedByTokenId: by.TokenID},
	}})
}

// UseToken is the operation that admits a node by the token with a hash. It is refused with a
// *RefusedError. It uses nothing up if the node has an admission.
func UseToken(hash [32]byte, raftID string, lasts time.Duration) (storage.Operation, error) {
	return storage.EncodeOperation(Kind, &recordv1.JoinOperation{Kind: &recordv1.JoinOperation_UseToken{
		UseToken: &recordv1.UseJoinToken{Hash: hash[:], RaftId: raftID, Lasts: int64(lasts)},
	}})
}

// Admit is the operation that admits a node because an admin has invited it. It is never refused.
func Admit(raftID string, lasts time.Duration) (storage.Operation, error) {
	return storage.EncodeOperation(Kind, &recordv1.JoinOperation{Kind: &recordv1.JoinOperation_Admit{
		Admit: &recordv1.Admission{RaftId: raftID, Lasts: int64(lasts)},
	}})
}

// EndAdmission is the operation that ends the admission of a node, which is a member now. It is
// never refused.
func EndAdmission(raftID string) (storage.Operation, error) {
	return storage.EncodeOperation(Kind, &recordv1.JoinOperation{Kind: &recordv1.JoinOperation_EndAdmission{
		EndAdmission: &recordv1.EndAdmission{RaftId: raftID},
	}})
}
