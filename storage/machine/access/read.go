package access

import (
	"errors"
	"fmt"
	"iter"

	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	recordv1 "runlog/proto/record/v1"
	"runlog/storage"
)

// TokenByHash returns the token whose text has a hash; nil: there is none.
func TokenByHash(s *storage.Store, hash [32]byte) (t *Token, err error) {
	v, err := s.Tables(Kind)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	id, err := v.Get(append([]byte(hashTable), hash[:]...))
	if err != nil || id == nil {
		return nil, err
	}
	return byID(v, string(id))
}

// TokenByID returns the token with an id; nil: there is none.
func TokenByID(s *storage.Store, id string) (t *Token, err error) {
	v, err := s.Tables(Kind)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	return byID(v, id)
}

func byID(r storage.TableReader, id string) (*Token, error) {
	row, err := r.Get(tokenKey(id))
	if err != nil || row == nil {
		return nil, err
	}
	var m recordv1.AccessToken
	if err := proto.Unmarshal(row, &m); err != nil {
		return nil, fmt.Errorf("%w: token %q: %w", errRow, id, err)
	}
	return decode(&m), nil
}

// Tokens returns at most n tokens whose ids come after another, in the order in which they were
// made; after empty: from the first.
func Tokens(s *storage.Store, after string, n int) (list []*Token, err error) {
	v, err := s.Tables(Kind)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	for m, err := range tokens(v, after) {
		if err != nil {
			return nil, err
		}
		if len(list) == n {
			break
		}
		list = append(list, decode(m))
	}
	return list, nil
}

// tokens are the rows after the one with an id.
func tokens(r storage.TableReader, after string) iter.Seq2[*recordv1.AccessToken, error] {
	return func(yield func(*recordv1.AccessToken, error) bool) {
		from := []byte(tokenTable)
		if after != "" {
			from = append(tokenKey(after), 0)
		}
		for row, err := range r.Scan(from, nil) {
			m := &recordv1.AccessToken{}
			if err == nil {
				err = proto.Unmarshal(row.Value, m)
			}
			if err != nil {
				yield(nil, fmt.Errorf("access: read tokens: %w", err))
				return
			}
			if !yield(m, nil) {
				return
			}
		}
	}
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
