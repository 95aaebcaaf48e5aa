package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"runlog/testbed/bubble"
)

// TestPagesBeforeTheAPI: before the API is served, health and schemas are, a call is refused with
// what the node waits for, and Server-Sent Events wait (WATCH-4): a browser never tries again after
// a refusal.
func TestPagesBeforeTheAPI(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		stopping, stop := context.WithCancel(t.Context())
		state := func(code int) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
		}
		p := NewPages(PagesOptions{
			Healthz: state(http.StatusOK), Readyz: state(http.StatusServiceUnavailable),
			Waiting: func() string { return "1 of 3 nodes are there" }, Wait: time.Millisecond, Stopping: stopping,
		})
		ask := func(method, path, accept string) *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody)
			r.Header.Set("Accept", accept)
			w := httptest.NewRecorder()
			p.ServeHTTP(w, r)
			return w
		}
		for path, want := range map[string]int{"/healthz": 200, "/readyz": 503, "/openapi.json": 200, "/schemas/2.0.0/RunStarted.json": 200} {
			if got := ask(http.MethodGet, path, "").Code; got != want {
				t.Errorf("%s is %d, want %d", path, got, want)
			}
		}
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			w := ask(method, "/v1/runs", "application/json")
			var body struct {
				Message string
				Details []struct{ Reason string }
			}
			if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
				t.Fatal(err)
			}
			if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || body.Details[0].Reason != "NO_LEADER" ||
				!strings.Contains(body.Message, "1 of 3 nodes are there") {
				t.Errorf("%s: %d %s", method, w.Code, w.Body)
			}
		}
		watched := make(chan *httptest.ResponseRecorder, 2)
		watch := func() { watched <- ask(http.MethodGet, "/v1/runs/run:watch", "text/event-stream") }
		go watch()
		select {
		case w := <-watched:
			t.Fatalf("a watch is answered %d before there is an API", w.Code)
		case <-time.After(50 * time.Millisecond):
		}
		p.Serve(state(http.StatusTeapot))
		if w := <-watched; w.Code != http.StatusTeapot {
			t.Errorf("the watch is answered %d", w.Code)
		}
		if got := ask(http.MethodGet, "/v1/runs", "").Code; got != http.StatusTeapot {
			t.Errorf("a call is answered %d", got)
		}

		// A node that stops lets no watch wait.
		p = NewPages(PagesOptions{Waiting: func() string { return "the node is stopping" }, Wait: time.Millisecond, Stopping: stopping})
		go watch()
		stop()
		if w := <-watched; w.Code != http.StatusServiceUnavailable {
			t.Errorf("the watch of a stopping node is answered %d", w.Code)
		}
	})
}
