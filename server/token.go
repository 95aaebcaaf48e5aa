package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"runlog/projector"
	"runlog/proto/contract"
	"runlog/storage"
)

// Tokens are base64url of a kind and uvarints. A position will name one place a partition one day, so
// clients must not look inside.
const (
	tokenPosition = 1
	tokenWatch    = 2
	tokenPage     = 3
	tokenRuns     = 4
)

func formatToken(kind byte, numbers ...uint64) string {
	b := []byte{kind}
	for _, n := range numbers {
		b = binary.AppendUvarint(b, n)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// parseToken reads count numbers of a token of a kind.
func parseToken(token string, kind byte, count int) ([]uint64, bool) {
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) == 0 || b[0] != kind {
		return nil, false
	}
	b = b[1:]
	numbers := make([]uint64, 0, count)
	for len(b) > 0 {
		n, w := binary.Uvarint(b)
		if w <= 0 || len(numbers) == count {
			return nil, false
		}
		numbers, b = append(numbers, n), b[w:]
	}
	return numbers, len(numbers) == count
}

func formatPosition(p storage.Position) string { return formatToken(tokenPosition, uint64(p)) }

func parsePosition(field, token string) (storage.Position, error) {
	n, ok := parseToken(token, tokenPosition, 1)
	if !ok {
		return 0, invalid(field, "is not a position of this API; pass one on as you got it")
	}
	return storage.Position(n[0]), nil
}

func formatWatchToken(seq uint64) string { return formatToken(tokenWatch, seq) }

func parseWatchToken(token string) (uint64, error) {
	n, ok := parseToken(token, tokenWatch, 1)
	if !ok {
		return 0, &contract.Error{Reason: contract.ReasonResumeTokenInvalid,
			Message: "the resume token is not one of a watch; read a fresh snapshot and watch from its lastEventSeq"}
	}
	return n[0], nil
}

// runsPlace is where a watch of many runs is: how far in the commit order, and, while it still tells of the runs that
// there were when it began, how far in their list.
type runsPlace struct {
	cursor  projector.Cursor
	listing []byte // nil: the list has been told
}

// runsTokens makes and reads the tokens of watches with one filter on one cluster.
//
// A token is the kind, the place as two uvarints, the place in the list where there is one, and runsTagBytes of a hash
// over these, the cluster and the filter. The hash keeps tokens from being mixed up, and lets nobody in.
type runsTokens struct{ domain [sha256.Size]byte }

const runsTagBytes = 12

func newRunsTokens(cluster storage.ClusterID, f *projector.Filter) runsTokens {
	b := append([]byte("runlog watch\x00"), cluster[:]...)
	for _, part := range [...]string{f.TenantID, f.ProjectID, f.EnvironmentID, f.PlanID} {
		b = binary.AppendUvarint(b, uint64(len(part)))
		b = append(b, part...)
	}
	return runsTokens{sha256.Sum256(append(b, byte(f.Status)))}
}

func (t *runsTokens) tag(body []byte) []byte {
	sum := sha256.Sum256(append(t.domain[:len(t.domain):len(t.domain)], body...))
	return sum[:runsTagBytes]
}

func (t *runsTokens) format(at runsPlace) string {
	b := binary.AppendUvarint([]byte{tokenRuns}, uint64(at.cursor.Position))
	b = append(binary.AppendUvarint(b, at.cursor.Ahead), at.listing...)
	return base64.RawURLEncoding.EncodeToString(append(b, t.tag(b)...))
}

func (t *runsTokens) parse(token string) (at runsPlace, ok bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) < 1+runsTagBytes || b[0] != tokenRuns {
		return at, false
	}
	body, tag := b[:len(b)-runsTagBytes], b[len(b)-runsTagBytes:]
	if !bytes.Equal(tag, t.tag(body)) {
		return at, false
	}
	body = body[1:]
	position, n := binary.Uvarint(body)
	if n <= 0 {
		return at, false
	}
	ahead, m := binary.Uvarint(body[n:])
	if m <= 0 {
		return at, false
	}
	at.cursor = projector.Cursor{Position: storage.Position(position), Ahead: ahead}
	if rest := body[n+m:]; len(rest) > 0 {
		at.listing = rest
	}
	return at, true
}
