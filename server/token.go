package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"runlog/projector/run"
	pwatch "runlog/projector/watch"
	"runlog/proto/contract"
	"runlog/storage"
)

// Tokens are base64url of a kind and uvarints. A position will name one place a partition one day,
// so clients must not look inside.
const (
	tokenPosition     = 1
	tokenWatch        = 2
	tokenPage         = 3
	tokenRuns         = 4
	tokenWindow       = 5
	tokenSignedWindow = 7
	tokenSigned       = 6
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

// tagBytes of a hash keep tokens from being mixed up, and let nobody in.
const tagBytes = 12

// tokenDomain is what tokens are good for, hashed: they end in tagBytes of a hash over it and what
// comes before.
type tokenDomain [sha256.Size]byte

// tokenUse is what a use of tokens on one cluster is told apart by.
func tokenUse(use string, cluster storage.ClusterID, parts ...string) []byte {
	b := append([]byte("runlog "+use+"\x00"), cluster[:]...)
	for _, part := range parts {
		b = binary.AppendUvarint(b, uint64(len(part)))
		b = append(b, part...)
	}
	return b
}

func (d *tokenDomain) tag(body []byte) []byte {
	sum := sha256.Sum256(append(d[:len(d):len(d)], body...))
	return sum[:tagBytes]
}

// seal makes the token of a body.
func (d *tokenDomain) seal(body []byte) string {
	return base64.RawURLEncoding.EncodeToString(append(body, d.tag(body)...))
}

// unseal returns what follows the kind in a token's body.
func (d *tokenDomain) unseal(token string, kind byte) (body []byte, ok bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) < 1+tagBytes || b[0] != kind {
		return nil, false
	}
	body, tag := b[:len(b)-tagBytes], b[len(b)-tagBytes:]
	return body[1:], bytes.Equal(tag, d.tag(body))
}

// watchTokens makes and reads the tokens of watches of one run on one cluster. A token is the kind,
// the highest runSeq told as a uvarint, and the tag.
type watchTokens struct{ domain tokenDomain }

func newWatchTokens(cluster storage.ClusterID, runID string) watchTokens {
	return watchTokens{sha256.Sum256(tokenUse("watch of a run", cluster, runID))}
}

func (t *watchTokens) format(seq uint64) string {
	return t.domain.seal(binary.AppendUvarint([]byte{tokenWatch}, seq))
}

func (t *watchTokens) parse(token string) (seq uint64, err error) {
	if body, ok := t.domain.unseal(token, tokenWatch); ok {
		if seq, n := binary.Uvarint(body); n > 0 && n == len(body) {
			return seq, nil
		}
	}
	return 0, &contract.Error{Reason: contract.ReasonResumeTokenInvalid,
		Message: "the resume token is not one of a watch of this run; read a fresh snapshot and watch from its lastEventSeq"}
}

// runsPlace is where a watch of many runs is: how far in the commit order, and, while it still
// tells of the runs that there were when it began, how far in their list.
type runsPlace struct {
	cursor  pwatch.Cursor
	listing []byte // nil: the list has been told
}

// runsTokens makes and reads the tokens of watches with one filter on one cluster. A token is the
// kind, the place as two uvarints, the place in the list where there is one, and the tag.
type runsTokens struct{ domain tokenDomain }

func newRunsTokens(cluster storage.ClusterID, f *run.Filter) runsTokens {
	use := tokenUse("watch", cluster, f.TenantID, f.ProjectID, f.EnvironmentID, f.PlanID)
	return runsTokens{sha256.Sum256(append(use, byte(f.Status)))}
}

func (t *runsTokens) format(at runsPlace) string {
	b := binary.AppendUvarint([]byte{tokenRuns}, uint64(at.cursor.Position))
	return t.domain.seal(append(binary.AppendUvarint(b, at.cursor.Ahead), at.listing...))
}

func (t *runsTokens) parse(token string) (at runsPlace, ok bool) {
	body, ok := t.domain.unseal(token, tokenRuns)
	if !ok {
		return at, false
	}
	position, n := binary.Uvarint(body)
	if n <= 0 {
		return at, false
	}
	ahead, m := binary.Uvarint(body[n:])
	if m <= 0 {
		return at, false
	}
	at.cursor = pwatch.Cursor{Position: storage.Position(position), Ahead: ahead}
	if rest := body[n+m:]; len(rest) > 0 {
		at.listing = rest
	}
	return at, true
}

// checkpointTokens makes and reads the page tokens of signed checkpoints. A token is the kind, the
// position of the last one that was told as a uvarint, and the tag.
type checkpointTokens struct{ domain tokenDomain }

func newCheckpointTokens(cluster storage.ClusterID) checkpointTokens {
	return checkpointTokens{sha256.Sum256(tokenUse("signed checkpoints", cluster))}
}

func (t *checkpointTokens) format(last storage.Position) string {
	return t.domain.seal(binary.AppendUvarint([]byte{tokenSigned}, uint64(last)))
}

// parse returns 0 for no token.
func (t *checkpointTokens) parse(token string) (storage.Position, error) {
	if token == "" {
		return 0, nil
	}
	if body, ok := t.domain.unseal(token, tokenSigned); ok {
		if last, n := binary.Uvarint(body); n > 0 && n == len(body) && last > 0 {
			return storage.Position(last), nil
		}
	}
	return 0, invalid("pageToken", "is not one of this list"+beginAnew)
}
