package gateway

import (
	"net/http"
	"strings"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// Pages returns the handler of the HTTP listener: health, the descriptions of the API, and the API,
// for pages of some origins (Options.Origins).
func Pages(healthz, readyz http.HandlerFunc, api http.Handler, origins []string) http.Handler {
	return &cors{origins: origins, next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !streamed(r.URL.Path) {
			a := newAnswer(w, r)
			defer a.close()
			w = a
		}
		// This is no http.ServeMux, because that cleans paths, and a runId may contain escaped
		// slashes.
		switch r.URL.Path {
		case "/healthz":
			servePage(w, r, healthz)
		case "/readyz":
			servePage(w, r, readyz)
		case "/openapi.json":
			servePage(w, r, serveOpenAPI)
		default:
			if strings.HasPrefix(r.URL.Path, schemasPath) {
				servePage(w, r, serveSchema)
				return
			}
			if r.Method == http.MethodHead && !streamed(r.URL.Path) {
				get := *r
				get.Method = http.MethodGet
				r = &get
			}
			api.ServeHTTP(w, r)
		}
	})}
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
