package gateway

import (
	"context"
	"net/http"
	"strings"
	"time"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
)

// PagesOptions configure Pages. All but Origins are required.
type PagesOptions struct {
	Healthz, Readyz http.HandlerFunc
	// Waiting returns the reason why the node cannot take appends.
	Waiting func() string
	// Wait bounds how long a call waits for Serve.
	Wait time.Duration
	// Stopping ends when the node's shutdown begins.
	Stopping context.Context
	// Origins are the origins whose web pages may call the API.
	Origins Origins
}

// Pages is the handler of the HTTP listener: health, the descriptions of the API, and the API.
// Before Serve there is no API, because a node may wait long for its cluster.
type Pages struct {
	opts   PagesOptions
	api    http.Handler // valid once served is closed
	served chan struct{}
}

// NewPages makes the handler without the API.
func NewPages(opts PagesOptions) *Pages {
	return &Pages{opts: opts, served: make(chan struct{})}
}

// Serve adds the API. It may be called once.
func (p *Pages) Serve(api http.Handler) {
	p.api = api
	close(p.served)
}

// ServeHTTP answers with the pages that exist so far.
func (p *Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w = newSteady(w, writeTimeout)
	if p.opts.Origins.answer(w, r) {
		return
	}
	// A runId may end like the path of a stream, with an escaped colon.
	stream := streamed(r.URL.EscapedPath())
	if !stream {
		a := newAnswer(w, r)
		defer a.close()
		w = a
	}
	// This is no http.ServeMux, because that cleans paths, and a runId may contain escaped slashes.
	switch r.URL.Path {
	case "/healthz":
		servePage(w, r, p.opts.Healthz)
	case "/readyz":
		servePage(w, r, p.opts.Readyz)
	case "/openapi.json":
		servePage(w, r, serveOpenAPI)
	default:
		if strings.HasPrefix(r.URL.Path, schemasPath) {
			servePage(w, r, serveSchema)
			return
		}
		if !p.await(r) {
			refuseUnread(w, r, rpc.Encode(&contract.Error{Reason: contract.ReasonNoLeader, RetryAfter: time.Second,
				Message: "the node does not serve yet: " + p.opts.Waiting() + "; nothing was stored"}))
			return
		}
		if r.Method == http.MethodHead && !stream {
			get := *r
			get.Method = http.MethodGet
			r = &get
		}
		p.api.ServeHTTP(w, r)
	}
}

// await waits until the API is served. A browser closes an EventSource permanently when it is
// refused, so Server-Sent Events wait without limit.
func (p *Pages) await(r *http.Request) bool {
	select {
	case <-p.served:
		return true
	default:
	}
	var late <-chan time.Time
	if !strings.Contains(r.Header.Get("Accept"), mimeEventStream) {
		late = time.After(p.opts.Wait)
	}
	select {
	case <-p.served:
		return true
	case <-late:
	case <-r.Context().Done():
	case <-p.opts.Stopping.Done():
	}
	return false
}

// servePage serves a read-only page.
func servePage(w http.ResponseWriter, r *http.Request, page http.HandlerFunc) {
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		hangUp(w)
		writeMethodNotAllowed(w, r, []string{http.MethodGet, http.MethodHead})
	case !refuseBody(w, r):
		page(w, r)
	}
}

func serveOpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(runlogv1.OpenAPI)
}

const schemasPath = "/schemas/"

// serveSchema answers GET /schemas/{contract}/{eventType}.json (ENV-5).
func serveSchema(w http.ResponseWriter, r *http.Request) {
	version, file, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, schemasPath), "/")
	name, isJSON := strings.CutSuffix(file, ".json")
	line, known := contract.ParseLine(version)
	schema, found := contract.Schema(line, name)
	if !isJSON || !known || !found || version == "" {
		writeRouteNotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/schema+json")
	_, _ = w.Write(schema)
}
