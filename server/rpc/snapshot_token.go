package rpc

import (
	"encoding/binary"

	"runlog/projector/run"
	"runlog/server/rpc/wire"
	"runlog/storage"
)

// SnapshotToken is the token of a page of a snapshot (READ-8). Its body is watermark:8 digest:8,
// and the place as five uvarints.
type SnapshotToken struct {
	// Seq is the watermark of the snapshot, and digest the begin of its digest.
	Seq    uint64
	digest [8]byte
	// Place is where the page begins.
	Place wire.Place
}

// Of reports whether the pages are those of a snapshot.
func (t *SnapshotToken) Of(s *run.Snapshot) bool {
	digest := s.Digest()
	return s.LastEventSeq == t.Seq && [8]byte(digest[:8]) == t.digest
}

func snapshotTokens(in storage.Incarnation, runID string) TokenDomain {
	return NewTokenDomain("pages of a snapshot", in, runID)
}

// FormatSnapshotToken returns the token of the next page of a snapshot; empty: there is none.
func FormatSnapshotToken(in storage.Incarnation, s *run.Snapshot, next *wire.Place) string {
	if next == nil {
		return ""
	}
	digest := s.Digest()
	b := append(binary.BigEndian.AppendUint64(nil, s.LastEventSeq), digest[:8]...)
	for _, n := range [...]uint32{next.Signals, next.Pending, next.Steps, next.Attempts, next.Artifacts} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	domain := snapshotTokens(in, s.RunID)
	return domain.Seal(TokenSnapshot, b)
}

// ParseSnapshotToken parses the stepsPageToken of a request about a run.
func ParseSnapshotToken(token string, in storage.Incarnation, runID string) (*SnapshotToken, error) {
	const field = "stepsPageToken"
	domain := snapshotTokens(in, runID)
	body, ok := domain.OpenAs(TokenSnapshot, token)
	if !ok || len(body) < 16 {
		return nil, domain.Refused(field, token, Invalid(field,
			"was changed, or belongs to another run: pass on nextStepsPageToken as you got it, or omit it to start again"))
	}
	t := &SnapshotToken{Seq: binary.BigEndian.Uint64(body), digest: [8]byte(body[8:16])}
	body = body[16:]
	for _, n := range [...]*uint32{&t.Place.Signals, &t.Place.Pending, &t.Place.Steps, &t.Place.Attempts, &t.Place.Artifacts} {
		v, size := binary.Uvarint(body)
		*n, body = uint32(v), body[max(size, 0):]
	}
	return t, nil
}
