package audit

import (
	"encoding/binary"

	"runlog/server/rpc"
	"runlog/storage"
)

// checkpointTokens makes and reads the page tokens of signed checkpoints. The body of a token is the
// position of the last checkpoint that was told, a uvarint.
type checkpointTokens struct{ domain rpc.TokenDomain }

func newCheckpointTokens(cluster storage.ClusterID) checkpointTokens {
	return checkpointTokens{rpc.NewTokenDomain("signed checkpoints", cluster)}
}

func (t *checkpointTokens) format(last storage.Position) string {
	return t.domain.Seal(rpc.TokenCheckpoint, binary.AppendUvarint(nil, uint64(last)))
}

// parse returns 0 for no token.
func (t *checkpointTokens) parse(token string) (storage.Position, error) {
	if token == "" {
		return 0, nil
	}
	if body, ok := t.domain.OpenAs(rpc.TokenCheckpoint, token); ok {
		if last, n := binary.Uvarint(body); n > 0 && n == len(body) && last > 0 {
			return storage.Position(last), nil
		}
	}
	return 0, rpc.Invalid("pageToken", "is not one of this list"+rpc.BeginAnew)
}
