package access

import (
	"runlog/proto/contract"
	recordv1 "runlog/proto/record/v1"
	"runlog/storage"
	"runlog/storage/table"
)

// TokenByHash returns the token whose text has a hash; nil: there is none.
func TokenByHash(s *storage.Store, hash [32]byte) (*Token, error) {
	return storage.ReadTables(s, Kind, func(r table.Reader) (*Token, error) {
		id, err := r.Get(hashKey(hash[:]))
		if err != nil || id == nil {
			return nil, err
		}
		return byID(r, string(id))
	})
}

// TokenByID returns the token with an id; nil: there is none.
func TokenByID(s *storage.Store, id string) (*Token, error) {
	return storage.ReadTables(s, Kind, func(r table.Reader) (*Token, error) { return byID(r, id) })
}

func byID(r table.Reader, id string) (*Token, error) {
	m, err := table.Get[recordv1.AccessToken](r, tokenKey(id))
	if err != nil || m == nil {
		return nil, err
	}
	return decode(m), nil
}

// Tokens returns at most n tokens whose ids come after another, in the order in which they were
// made; after empty: from the first.
func Tokens(s *storage.Store, after string, n int) ([]*Token, error) {
	return storage.ReadTables(s, Kind, func(r table.Reader) (list []*Token, err error) {
		for m, err := range table.Each[recordv1.AccessToken](r.Scan(append(tokenKey(after), 0), nil)) {
			if err != nil || len(list) == n {
				return list, err
			}
			list = append(list, decode(m))
		}
		return list, nil
	})
}

func encode(t *Token) *recordv1.AccessToken {
	return &recordv1.AccessToken{
		TokenId: t.ID, Hash: t.Hash[:], Name: t.Name, Tenants: t.Tenants, AllTenants: t.AllTenants, Roles: t.Roles, ActFor: t.ActFor,
		ExpiresAt: t.ExpiresAt, CreatedBy: t.CreatedBy.Name, CreatedByTokenId: t.CreatedBy.TokenID,
	}
}

func decode(m *recordv1.AccessToken) *Token {
	t := &Token{
		ID: m.TokenId, Name: m.Name, Tenants: m.Tenants, AllTenants: m.AllTenants, Roles: m.Roles, ActFor: m.ActFor, ExpiresAt: m.ExpiresAt,
		CreatedBy: contract.Author{Name: m.CreatedBy, TokenID: m.CreatedByTokenId}, CreatedAt: m.CreatedAt,
		RevokedBy: contract.Author{Name: m.RevokedBy, TokenID: m.RevokedByTokenId}, RevokedAt: m.RevokedAt,
	}
	copy(t.Hash[:], m.Hash)
	return t
}
