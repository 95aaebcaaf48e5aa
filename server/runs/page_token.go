package runs

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"strings"

	"runlog/projector"
	"runlog/server/rpc"
	"runlog/storage"
)

// pageToken is where a list of runs goes on. A place in the list means the same in any projection
// of the cluster, so a token is valid as long as the cluster: across restarts, and across rebuilds
// of the projection. Its body is filter:8 position:8 place.
type pageToken struct {
	// position up to which, at least, the list was. A page of a shorter list could miss runs.
	position storage.Position
	place    []byte // nil: the begin
}

const filterHashBytes = 8

func pageTokens(cluster storage.ClusterID) rpc.TokenDomain {
	return rpc.NewTokenDomain("list of runs", cluster)
}

// filterHash tells filters apart.
func filterHash(f *projector.Filter) []byte {
	var b []byte
	for _, text := range [...]string{f.TenantID, f.ProjectID, f.EnvironmentID, f.PlanID} {
		b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
	}
	for _, n := range [...]int64{int64(f.Status), f.CreatedAfter, f.CreatedBefore} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	h := sha256.Sum256(b)
	return h[:filterHashBytes]
}

func (t *pageToken) format(cluster storage.ClusterID, f *projector.Filter) string {
	if t.place == nil {
		return ""
	}
	domain := pageTokens(cluster)
	b := binary.BigEndian.AppendUint64(filterHash(f), uint64(t.position))
	return domain.Seal(rpc.TokenPage, append(b, t.place...))
}

func parsePageToken(token string, cluster storage.ClusterID, f *projector.Filter) (*pageToken, error) {
	if token == "" {
		return &pageToken{}, nil
	}
	const passOn = ": pass on nextPageToken as you got it" + rpc.BeginAnew
	domain := pageTokens(cluster)
	body, ok := domain.OpenAs(rpc.TokenPage, token)
	switch {
	case !ok && rpc.KindOf(strings.TrimSpace(token)) == rpc.TokenPage:
		return nil, rpc.Invalid("pageToken", "was changed on the way, or is of another cluster"+passOn)
	case !ok || len(body) <= filterHashBytes+8:
		return nil, rpc.Invalid("pageToken", "is not a token of a list of runs"+passOn)
	case !bytes.Equal(body[:filterHashBytes], filterHash(f)):
		return nil, rpc.Invalid("pageToken", "is of a list with another filter: send the filter with which that list began"+rpc.BeginAnew)
	}
	return &pageToken{
		position: storage.Position(binary.BigEndian.Uint64(body[filterHashBytes:])),
		place:    body[filterHashBytes+8:],
	}, nil
}
