package audit

import (
	"encoding/binary"

	"runlog/server/rpc"
	"runlog/storage"
)

// checkpointTokens makes and parses the page tokens of signed checkpoints. The body of a token is
// the position of the last checkpoint on the page, a uvarint.
type checkpointTokens struct{ domain rpc.TokenDomain }

func newCheckpointTokens(in storage.Incarnation) checkpointTokens {
	return checkpointTokens{rpc.NewTokenDomain("signed checkpoints", in)}
}

func (t *checkpointTokens) format(last storage.Position) string {
	return t.domain.Seal(rpc.TokenCheckpoint, binary.AppendUvarint(nil, uint64(last)))
}

// parse returns 0 for an empty token.
func (t *checkpointTokens) parse(token string) (storage.Position, error) {
	if token == "" {
		return 0, nil
	}
	if body, ok := t.domain.OpenAs(rpc.TokenCheckpoint, token); ok {
		if last, n := binary.Uvarint(body); n > 0 && n == len(body) && last > 0 {
			return storage.Position(last), nil
		}
	}
	return 0, t.domain.Refused("pageToken", token, rpc.Invalid("pageToken", "is not a token of this list"+rpc.StartAgain))
}
