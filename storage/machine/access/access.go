// Package access is the machine of what lets callers in: API tokens (SEC-2).
//
//	A tokenId     a token                  record.v1.AccessToken
//	B hash:32     the id of that token     text
//	C name        the id of the token      text, while it is not revoked
//
// Invariants: a token's text is stored nowhere, only its SHA-256. Among the tokens that are not
// revoked no two have one name. A token is never changed but for its revocation, and never deleted:
// records name it.
package access

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	recordv1 "runlog/proto/record/v1"
	"runlog/storage"
	"runlog/storage/table"
)

// Kind of the machine.
const Kind = 18

const (
	tokenTable = "A"
	hashTable  = "B"
	nameTable  = "C"
)

// Machine is the storage.Machine of this package.
type Machine struct{}

var _ storage.Machine = Machine{}

// Kind implements storage.Machine.
func (Machine) Kind() uint32 { return Kind }

// Tables implements storage.Machine.
func (Machine) Tables() []storage.Table {
	return []storage.Table{
		{Prefix: []byte(tokenTable), Name: "API tokens"},
		{Prefix: []byte(hashTable), Name: "API tokens by their hash"},
		{Prefix: []byte(nameTable), Name: "API tokens by their name"},
	}
}

// Level implements storage.Machine.
func (Machine) Level([]byte) uint32 { return storage.CoreLevel }

// Token is an API token.
type Token struct {
	ID   string
	Hash [32]byte // SHA-256 of the token's text
	Name string
	// Tenants are sorted; AllTenants: every one.
	Tenants    []string
	AllTenants bool
	Roles      []uint32 // numbers of runlog.v1.Role.Value, sorted
	ActFor     []string // identities in whose names it may attest, sorted; "*" alone: all of them
	ExpiresAt  int64    // nanoseconds; 0: never
	CreatedBy  contract.Author
	// CreatedAt, RevokedAt and RevokedBy are set by apply; RevokedAt 0: it is not revoked.
	CreatedAt, RevokedAt int64
	RevokedBy            contract.Author
}

// NameTakenError says that another token has the name.
type NameTakenError struct{ Name, ID string }

func (e *NameTakenError) Error() string {
	return fmt.Sprintf("token %s has the name %q already", e.ID, e.Name)
}

// NotFoundError says that there is no token with an id.
type NotFoundError struct{ ID string }

func (e *NotFoundError) Error() string { return fmt.Sprintf("there is no token %q", e.ID) }

// PutToken is the operation that stores a new token. It is refused with a *NameTakenError.
func PutToken(t *Token) (storage.Operation, error) {
	return storage.EncodeOperation(Kind, &recordv1.AccessOperation{Kind: &recordv1.AccessOperation_PutToken{PutToken: encode(t)}})
}

// RevokeToken is the operation that ends a token. It is refused with a *NotFoundError. A token that
// is revoked stays as it is.
func RevokeToken(id string, by contract.Author) (storage.Operation, error) {
	return storage.EncodeOperation(Kind, &recordv1.AccessOperation{Kind: &recordv1.AccessOperation_RevokeToken{
		RevokeToken: &recordv1.RevokeToken{TokenId: id, RevokedBy: by.Name, RevokedByTokenId: by.TokenID},
	}})
}

// Apply implements storage.Machine.
func (Machine) Apply(tx *storage.Tx, op []byte) (reply []byte, refused, fatal error) {
	var m recordv1.AccessOperation
	if err := proto.Unmarshal(op, &m); err != nil {
		return nil, nil, fmt.Errorf("access: undecodable operation: %w", err)
	}
	switch kind := m.Kind.(type) {
	case *recordv1.AccessOperation_PutToken:
		refused, fatal = putToken(tx, kind.PutToken)
	case *recordv1.AccessOperation_RevokeToken:
		refused, fatal = revokeToken(tx, kind.RevokeToken)
	default:
		fatal = storage.ErrUnknownOperation
	}
	return nil, refused, fatal
}

func putToken(tx *storage.Tx, m *recordv1.AccessToken) (refused, fatal error) {
	other, err := tx.Get(nameKey(m.Name))
	if err != nil {
		return nil, err
	}
	if other != nil {
		return &NameTakenError{Name: m.Name, ID: string(other)}, nil
	}
	m.CreatedAt, m.RevokedAt, m.RevokedBy, m.RevokedByTokenId = tx.Stamp(), 0, "", ""
	tx.Set(hashKey(m.Hash), []byte(m.TokenId))
	tx.Set(nameKey(m.Name), []byte(m.TokenId))
	return nil, table.Set(tx, tokenKey(m.TokenId), m)
}

func revokeToken(tx *storage.Tx, m *recordv1.RevokeToken) (refused, fatal error) {
	t, err := table.Get[recordv1.AccessToken](tx, tokenKey(m.TokenId))
	switch {
	case err != nil:
		return nil, err
	case t == nil:
		return &NotFoundError{ID: m.TokenId}, nil
	case t.RevokedAt != 0:
		return nil, nil
	}
	t.RevokedAt, t.RevokedBy, t.RevokedByTokenId = tx.Stamp(), m.RevokedBy, m.RevokedByTokenId
	tx.Delete(nameKey(t.Name))
	return nil, table.Set(tx, tokenKey(t.TokenId), t)
}

func tokenKey(id string) []byte { return []byte(tokenTable + id) }

func hashKey(hash []byte) []byte { return append([]byte(hashTable), hash...) }

func nameKey(name string) []byte { return []byte(nameTable + name) }
