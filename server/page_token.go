package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"runlog/projector/run"
	"runlog/storage"
)

// pageToken is where a list of runs goes on. A place in the list means the same in any projection
// of the cluster, so a token holds for as long as the cluster, whatever was restarted or made anew
// since.
//
//	kind:1 filter:8 position:8 place check:8
//
// Filter is a hash of the list's filter, and check one of the cluster and of all before it. They
// are there to tell mistakes, and keep no secret.
type pageToken struct {
	// up to which, at least, the list was; a page from a shorter one could miss runs
	position storage.Position
	place    []byte // nil: the begin
}

const (
	pageTokenHeader = 1 + sumBytes + 8
	sumBytes        = 8

	// beginAnew is what can always be done about a page token.
	beginAnew = ", or leave pageToken out to begin anew"
)

// sum is the begin of the SHA-256 of a list of texts.
func sum(parts ...[]byte) []byte {
	var b []byte
	for _, p := range parts {
		b = append(binary.AppendUvarint(b, uint64(len(p))), p...)
	}
	h := sha256.Sum256(b)
	return h[:sumBytes]
}

func filterSum(f *run.Filter) []byte {
	var numbers []byte
	for _, n := range [...]int64{int64(f.Status), f.CreatedAfter, f.CreatedBefore} {
		numbers = binary.BigEndian.AppendUint64(numbers, uint64(n))
	}
	return sum([]byte("runlog/list/1"), []byte(f.TenantID), []byte(f.ProjectID), []byte(f.EnvironmentID), []byte(f.PlanID), numbers)
}

func (t *pageToken) format(cluster storage.ClusterID, f *run.Filter) string {
	if t.place == nil {
		return ""
	}
	b := append([]byte{tokenPage}, filterSum(f)...)
	b = binary.BigEndian.AppendUint64(b, uint64(t.position))
	b = append(b, t.place...)
	b = append(b, sum([]byte("runlog/page/1"), cluster[:], b)...)
	return base64.RawURLEncoding.EncodeToString(b)
}

func parsePageToken(token string, cluster storage.ClusterID, f *run.Filter) (*pageToken, error) {
	if token == "" {
		return &pageToken{}, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) <= pageTokenHeader+sumBytes || b[0] != tokenPage {
		return nil, invalid("pageToken", "is not a token of a list of runs: pass on nextPageToken as you got it"+beginAnew)
	}
	filter, end := b[1:1+sumBytes], len(b)-sumBytes
	t := &pageToken{
		position: storage.Position(binary.BigEndian.Uint64(b[1+sumBytes:])),
		place:    b[pageTokenHeader:end:end],
	}
	switch {
	case !bytes.Equal(b[end:], sum([]byte("runlog/page/1"), cluster[:], b[:end])):
		return nil, invalid("pageToken", "was changed on the way, or is of another cluster: pass on nextPageToken as you got it"+beginAnew)
	case !bytes.Equal(filter, filterSum(f)):
		return nil, invalid("pageToken", "is of a list with another filter: send the filter with which that list began"+beginAnew)
	case t.format(cluster, f) != token: // base64 has more than one way to say the same
		return nil, invalid("pageToken", "is not spelt as it was: pass on nextPageToken as you got it"+beginAnew)
	}
	return t, nil
}
