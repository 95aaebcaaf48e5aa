package runs

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"

	"runlog/projector/run"
	"runlog/server/rpc"
	"runlog/storage"
)

// pageToken is the cursor of a list of runs. A place in the list means the same in every projection
// of the cluster. So a token stays valid as long as the incarnation of the cluster, across restarts
// and rebuilds of the projection. Its body is filter:8 position:8 place.
type pageToken struct {
	// position is a lower bound of the projection's position. An older projection could lack runs.
	// In a list as of a moment it is the moment's, so that all pages are of one moment.
	position storage.Position
	place    []byte // nil: the first page
}

const filterHashBytes = 8

func pageTokens(in storage.Incarnation) rpc.TokenDomain {
	return rpc.NewTokenDomain("list of runs", in)
}

// filterHash identifies a filter, its order, and the moment of the list.
func filterHash(f *run.Filter, m rpc.Moment) []byte {
	var b []byte
	texts := []string{f.TenantID, f.ProjectID, f.EnvironmentID, f.PlanID, f.PlanVersion, f.RunIDPrefix}
	for _, l := range f.Labels {
		texts = append(texts, l.Key, l.Value)
	}
	for _, text := range texts {
		b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
	}
	oldest := int64(0)
	if f.OldestFirst {
		oldest = 1
	}
	for _, n := range [...]int64{int64(f.Statuses), f.CreatedAfter, f.CreatedBefore, f.StartedAfter, f.StartedBefore, oldest} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	if m.Kind != rpc.MomentNow {
		b = fmt.Append(b, m.Kind, m.At.Time, m.At.Position)
	}
	h := sha256.Sum256(b)
	return h[:filterHashBytes]
}

func (t *pageToken) format(in storage.Incarnation, f *run.Filter, m rpc.Moment) string {
	if t.place == nil {
		return ""
	}
	domain := pageTokens(in)
	b := binary.BigEndian.AppendUint64(filterHash(f, m), uint64(t.position))
	return domain.Seal(rpc.TokenPage, append(b, t.place...))
}

func parsePageToken(token string, in storage.Incarnation, f *run.Filter, m rpc.Moment) (*pageToken, error) {
	if token == "" {
		return &pageToken{}, nil
	}
	const passOn = ": pass on nextPageToken as you got it" + rpc.StartAgain
	domain := pageTokens(in)
	body, ok := domain.OpenAs(rpc.TokenPage, token)
	switch {
	case !ok && rpc.KindOf(strings.TrimSpace(token)) == rpc.TokenPage:
		return nil, domain.Refused("pageToken", token, rpc.Invalid("pageToken", "was changed"+passOn))
	case !ok || len(body) <= filterHashBytes+8:
		return nil, rpc.Invalid("pageToken", "is not a token of a list of runs"+passOn)
	case !bytes.Equal(body[:filterHashBytes], filterHash(f, m)):
		return nil, rpc.Invalid("pageToken", "belongs to a list with another filter or moment: send those of the first page"+rpc.StartAgain)
	}
	return &pageToken{
		position: storage.Position(binary.BigEndian.Uint64(body[filterHashBytes:])),
		place:    body[filterHashBytes+8:],
	}, nil
}
