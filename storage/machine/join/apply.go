package join

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage"
	"runlog/storage/table"
)

// Apply implements storage.Machine.
func (Machine) Apply(tx *storage.Tx, op []byte) (reply []byte, refused, fatal error) {
	var m recordv1.JoinOperation
	if err := proto.Unmarshal(op, &m); err != nil {
		return nil, nil, fmt.Errorf("join: undecodable operation: %w", err)
	}
	switch kind := m.Kind.(type) {
	case *recordv1.JoinOperation_PutToken:
		refused, fatal = putToken(tx, kind.PutToken)
	case *recordv1.JoinOperation_RevokeToken:
		refused, fatal = revokeToken(tx, kind.RevokeToken)
	case *recordv1.JoinOperation_UseToken:
		refused, fatal = useToken(tx, kind.UseToken)
	case *recordv1.JoinOperation_Admit:
		fatal = admit(tx, kind.Admit.RaftId, "", kind.Admit.Lasts)
	case *recordv1.JoinOperation_EndAdmission:
		tx.Delete(admissionKey(kind.EndAdmission.RaftId))
	default:
		fatal = storage.ErrUnknownOperation
	}
	return nil, refused, fatal
}

func putToken(tx *storage.Tx, m *recordv1.JoinToken) (refused, fatal error) {
	kept, old := 0, []*recordv1.JoinToken(nil)
	for t, err := range tokens(tx) {
		switch {
		case err != nil:
			return nil, err
		case t.ExpiresAt+int64(keepExpired) < tx.Stamp():
			old = append(old, t)
		default:
			kept++
		}
	}
	if kept >= MaxTokens {
		return ErrTooMany, nil
	}
	for _, t := range old {
		tx.Delete(tokenKey(t.TokenId))
		tx.Delete(hashKey(t.Hash))
	}
	m.Used, m.CreatedAt, m.RevokedAt, m.RevokedBy, m.RevokedByTokenId = 0, tx.Stamp(), 0, "", ""
	tx.Set(hashKey(m.Hash), []byte(m.TokenId))
	return nil, table.Set(tx, tokenKey(m.TokenId), m)
}

func revokeToken(tx *storage.Tx, m *recordv1.RevokeJoinToken) (refused, fatal error) {
	t, err := byID(tx, m.TokenId)
	switch {
	case err != nil:
		return nil, err
	case t == nil:
		return &NotFoundError{ID: m.TokenId}, nil
	case t.RevokedAt != 0:
		return nil, nil
	}
	if err := dropAdmissions(tx, func(a *recordv1.Admission) bool { return a.TokenId == m.TokenId }); err != nil {
		return nil, err
	}
	t.RevokedAt, t.RevokedBy, t.RevokedByTokenId = tx.Stamp(), m.RevokedBy, m.RevokedByTokenId
	return nil, table.Set(tx, tokenKey(t.TokenId), t)
}

func useToken(tx *storage.Tx, m *recordv1.UseJoinToken) (refused, fatal error) {
	if ends, err := admittedUntil(tx, m.RaftId); err != nil || ends > tx.Stamp() {
		return nil, err
	}
	t, err := byHash(tx, m.Hash)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return &RefusedError{Why: Unknown}, nil
	}
	if why := decode(t).Fault(tx.Stamp()); why != "" {
		return &RefusedError{Why: why}, nil
	}
	t.Used++
	if err := table.Set(tx, tokenKey(t.TokenId), t); err != nil {
		return nil, err
	}
	return nil, admit(tx, m.RaftId, t.TokenId, m.Lasts)
}

// admit stores an admission, and deletes those that have ended.
func admit(tx *storage.Tx, raftID, tokenID string, lasts int64) error {
	if err := dropAdmissions(tx, func(a *recordv1.Admission) bool { return a.EndsAt <= tx.Stamp() }); err != nil {
		return err
	}
	return table.Set(tx, admissionKey(raftID), &recordv1.Admission{RaftId: raftID, EndsAt: tx.Stamp() + lasts, TokenId: tokenID})
}

func dropAdmissions(tx *storage.Tx, drop func(*recordv1.Admission) bool) error {
	var keys [][]byte
	for a, err := range table.Each[recordv1.Admission](tx.Scan([]byte(admissionTable), nil)) {
		if err != nil {
			return err
		}
		if drop(a) {
			keys = append(keys, admissionKey(a.RaftId))
		}
	}
	for _, key := range keys {
		tx.Delete(key)
	}
	return nil
}

func tokenKey(id string) []byte { return []byte(tokenTable + id) }

func hashKey(hash []byte) []byte { return append([]byte(hashTable), hash...) }

func admissionKey(raftID string) []byte { return []byte(admissionTable + raftID) }
