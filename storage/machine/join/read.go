package join

import (
	"iter"

	"runlog/proto/contract"
	recordv1 "runlog/proto/record/v1"
	"runlog/storage"
	"runlog/storage/table"
)

// TokenByHash returns the token whose text has a hash; nil: there is none.
func TokenByHash(s *storage.Store, hash [32]byte) (*Token, error) {
	return storage.ReadTables(s, Kind, func(r table.Reader) (*Token, error) {
		m, err := byHash(r, hash[:])
		return decode(m), err
	})
}

// TokenByID returns the token with an id; nil: there is none.
func TokenByID(s *storage.Store, id string) (*Token, error) {
	return storage.ReadTables(s, Kind, func(r table.Reader) (*Token, error) {
		m, err := byID(r, id)
		return decode(m), err
	})
}

// Tokens returns all tokens in the order in which they were made.
func Tokens(s *storage.Store) ([]*Token, error) {
	return storage.ReadTables(s, Kind, func(r table.Reader) (list []*Token, err error) {
		for m, err := range tokens(r) {
			if err != nil {
				return nil, err
			}
			list = append(list, decode(m))
		}
		return list, nil
	})
}

// AdmittedUntil returns until when a node may become a member, in nanoseconds; 0: it may not.
func AdmittedUntil(s *storage.Store, raftID string) (int64, error) {
	return storage.ReadTables(s, Kind, func(r table.Reader) (int64, error) { return admittedUntil(r, raftID) })
}

func byHash(r table.Reader, hash []byte) (*recordv1.JoinToken, error) {
	id, err := r.Get(hashKey(hash))
	if err != nil || id == nil {
		return nil, err
	}
	return byID(r, string(id))
}

func byID(r table.Reader, id string) (*recordv1.JoinToken, error) {
	return table.Get[recordv1.JoinToken](r, tokenKey(id))
}

func tokens(r table.Reader) iter.Seq2[*recordv1.JoinToken, error] {
	return table.Each[recordv1.JoinToken](r.Scan([]byte(tokenTable), nil))
}

func admittedUntil(r table.Reader, raftID string) (int64, error) {
	a, err := table.Get[recordv1.Admission](r, admissionKey(raftID))
	return a.GetEndsAt(), err
}

// decode returns the token of a row; nil: there is no row.
func decode(m *recordv1.JoinToken) *Token {
	if m == nil {
		return nil
	}
	t := &Token{
		ID: m.TokenId, Uses: m.Uses, Used: m.Used, ExpiresAt: m.ExpiresAt,
		CreatedBy: contract.Author{Name: m.CreatedBy, TokenID: m.CreatedByTokenId}, CreatedAt: m.CreatedAt,
		RevokedBy: contract.Author{Name: m.RevokedBy, TokenID: m.RevokedByTokenId}, RevokedAt: m.RevokedAt,
	}
	copy(t.Hash[:], m.Hash)
	return t
}
