package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
)

// maxManifests of a list, each of which is read for its name.
const maxManifests = 100

// storedManifest is the place of a manifest in the list: the newest comes first, and of two of one
// moment the one with the smaller id.
type storedManifest struct {
	at int64 // when it was stored, in nanoseconds since 1970
	id string
}

func (m storedManifest) compare(other storedManifest) int {
	return cmp.Or(cmp.Compare(other.at, m.at), cmp.Compare(m.id, other.id))
}

// newest comes before every manifest.
var newest = storedManifest{at: math.MaxInt64}

// token is the page token behind the manifest.
func (m storedManifest) token() string { return fmt.Sprintf("%d.%s", m.at, m.id) }

// manifestOf reads a page token.
func manifestOf(token string) (m storedManifest, err error) {
	at, id, _ := strings.Cut(token, ".")
	if m.at, err = strconv.ParseInt(at, 10, 64); err != nil || !isManifestID(id) {
		return m, faulty("", "page_token is none of this list: send the next_page_token of an answer")
	}
	m.id = id
	return m, nil
}

// behind returns the n manifests of the tenant that follow one in the list. It passes all that are
// stored, and keeps those n.
func (r *Runner) behind(ctx context.Context, m storedManifest, n int) (page []storedManifest, err error) {
	for e, err := range r.o.Blobs.List(ctx, r.manifests()) {
		if err != nil {
			return nil, err
		}
		id, ok := strings.CutSuffix(e.Name, ".json")
		is := storedManifest{e.Stored.UnixNano(), id}
		if !ok || !isManifestID(id) || m.compare(is) >= 0 {
			continue
		}
		i, _ := slices.BinarySearchFunc(page, is, storedManifest.compare)
		page = slices.Insert(page, i, is)
		page = page[:min(len(page), n)]
	}
	return page, nil
}

// listManifests lists the manifests of the tenant, the newest first.
func (a *api) listManifests(ctx context.Context, c *client.Client, req *http.Request, _ []byte) (int, any, error) {
	if err := a.admit(ctx, c, runlogv1.Role_READER, runlogv1.Role_AUDITOR, runlogv1.Role_PRODUCER, runlogv1.Role_OPERATOR); err != nil {
		return 0, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	query := req.URL.Query()
	limit, err := limitOf(query, maxManifests)
	if err != nil {
		return 0, nil, err
	}
	behind := newest
	if token := query.Get("page_token"); token != "" {
		if behind, err = manifestOf(token); err != nil {
			return 0, nil, err
		}
	}
	page, err := a.behind(ctx, behind, limit+1)
	if err != nil {
		return 0, nil, err
	}
	next := ""
	if len(page) > limit {
		page = page[:limit]
		next = page[limit-1].token()
	}
	type listed struct {
		ID        string    `json:"id"`
		Name      string    `json:"name"`
		CreatedAt time.Time `json:"created_at"`
	}
	list := []listed{}
	for _, m := range page {
		text, err := a.loadManifest(ctx, m.id)
		if errors.Is(err, errNoManifest) {
			continue // It is gone.
		}
		is := listed{ID: m.id, CreatedAt: time.Unix(0, m.at).UTC()}
		if err == nil {
			err = json.Unmarshal(text, &is)
		}
		if err != nil {
			return 0, nil, err
		}
		list = append(list, is)
	}
	return http.StatusOK, map[string]any{"manifests": list, "next_page_token": next}, nil
}
