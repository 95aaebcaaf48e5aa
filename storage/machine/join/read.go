package join

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
	err = view(s, func(r storage.TableReader) error {
		m, err := byHash(r, hash[:])
		if m != nil {
			t = decode(m)
		}
		return err
	})
	return t, err
}

// TokenByID returns the token with an id; nil: there is none.
func TokenByID(s *storage.Store, id string) (t *Token, err error) {
	err = view(s, func(r storage.TableReader) error {
		m, err := byID(r, id)
		if m != nil {
			t = decode(m)
		}
		return err
	})
	return t, err
}

// Tokens returns all tokens in the order in which they were made.
func Tokens(s *storage.Store) (list []*Token, err error) {
	err = view(s, func(r storage.TableReader) error {
		for m, err := range tokens(r) {
			if err != nil {
				return err
			}
			list = append(list, decode(m))
		}
		return nil
	})
	return list, err
}

// AdmittedUntil returns until when a node may become a member, in nanoseconds; 0: it may not.
func AdmittedUntil(s *storage.Store, raftID string) (ends int64, err error) {
	err = view(s, func(r storage.TableReader) (err error) {
		ends, err = admittedUntil(r, raftID)
		return err
	})
	return ends, err
}

// view reads the tables as of one moment.
func view(s *storage.Store, read func(storage.TableReader) error) error {
	v, err := s.Tables(Kind)
	if err != nil {
		return err
	}
	return errors.Join(read(v), v.Close())
}

func byHash(r storage.TableReader, hash []byte) (*recordv1.JoinToken, error) {
	id, err := r.Get(hashKey(hash))
	if err != nil || id == nil {
		return nil, err
	}
	return byID(r, string(id))
}

func byID(r storage.TableReader, id string) (*recordv1.JoinToken, error) {
	row, err := r.Get(tokenKey(id))
	if err != nil || row == nil {
		return nil, err
	}
	m := &recordv1.JoinToken{}
	if err := proto.Unmarshal(row, m); err != nil {
		return nil, fmt.Errorf("%w: token %q: %w", errRow, id, err)
	}
	return m, nil
}

func tokens(r storage.TableReader) iter.Seq2[*recordv1.JoinToken, error] {
	return func(yield func(*recordv1.JoinToken, error) bool) {
		for row, err := range r.Scan([]byte(tokenTable), nil) {
			m := &recordv1.JoinToken{}
			if err == nil {
				err = proto.Unmarshal(row.Value, m)
			}
			if err != nil {
				yield(nil, fmt.Errorf("join: read tokens: %w", err))
				return
			}
			if !yield(m, nil) {
				return
			}
		}
	}
}

func admittedUntil(r storage.TableReader, raftID string) (int64, error) {
	row, err := r.Get(admissionKey(raftID))
	if err != nil || row == nil {
		return 0, err
	}
	var a recordv1.Admission
	if err := proto.Unmarshal(row, &a); err != nil {
		return 0, fmt.Errorf("%w: admission of %q: %w", errRow, raftID, err)
	}
	return a.EndsAt, nil
}

func decode(m *recordv1.JoinToken) *Token {
	t := &Token{
		ID: m.TokenId, Uses: m.Uses, Used: m.Used, ExpiresAt: m.ExpiresAt,
		CreatedBy: contract.Author{Name: m.CreatedBy, TokenID: m.CreatedByTokenId}, CreatedAt: m.CreatedAt,
		RevokedBy: contract.Author{Name: m.RevokedBy, TokenID: m.RevokedByTokenId}, RevokedAt: m.RevokedAt,
	}
	copy(t.Hash[:], m.Hash)
	return t
}
