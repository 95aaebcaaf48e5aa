package witness

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"runlog/audit/proof"
)

// serve answers for a witness, over HTTP.
func serve(t *testing.T, h http.Handler, key *proof.WitnessKey) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return &Client{URL: s.URL + "/", Key: key, HTTP: s.Client()}
}

func (h *history) proves(_ context.Context, earlier, later uint64) ([]tlog.Hash, error) {
	if earlier > later {
		return nil, errors.New("it is asked for the proof of a smaller tree")
	}
	return h.prove(earlier, later), nil
}

// TestCosignTR4: a client gets the signature of a witness, whatever size it believes the witness to
// have, and learns when the witness has another tree.
func TestCosignTR4(t *testing.T) {
	for _, keyType := range []string{proof.KeyEd25519, proof.KeyMLDSA44} {
		t.Run(keyType, func(t *testing.T) { testCosign(t, keyType) })
	}
}

func testCosign(t *testing.T, keyType string) {
	cosigner, err := proof.NewCosignerOfType(keyType, "witness.example/w", [32]byte{9})
	if err != nil {
		t.Fatal(err)
	}
	w := newWitness(t, func(o *Options) { o.Cosigner = cosigner })
	c := serve(t, w, w.opts.Cosigner.Key())
	h, other := newHistory(t, 30, 5, 'a'), newHistory(t, 30, 5, 'b')
	for _, step := range []struct {
		from uint64
		size int64
	}{{0, 4}, {4, 4}, {0, 9}, {9, 12}, {4, 20}, {20, 20}} {
		note := h.note(step.size)
		line, err := c.Cosign(t.Context(), note, step.from, h.proves)
		if err != nil {
			t.Fatalf("from %d to %d: %v", step.from, step.size, err)
		}
		if found, err := proof.Cosignatures(note+line, c.Key); err != nil || len(found) != 1 {
			t.Errorf("%q: %v", line, err)
		}
	}
	for _, step := range []struct {
		h    *history
		from uint64
		size int64
		want error
	}{
		{other, 20, 20, ErrConflict}, {other, 0, 20, ErrConflict}, {other, 20, 25, ErrConflict}, {h, 0, 12, ErrConflict},
	} {
		if line, err := c.Cosign(t.Context(), step.h.note(step.size), step.from, step.h.proves); !errors.Is(err, step.want) {
			t.Errorf("from %d to %d: %q, %v, want %v", step.from, step.size, line, err, step.want)
		}
	}
	if line, err := c.Cosign(t.Context(), "x", 0, h.proves); !errors.Is(err, proof.ErrNote) {
		t.Errorf("no note: %q, %v", line, err)
	}
}

// TestLyingWitnessTR4: a witness that lies about its size, signs something else, answers with
// anything, slowly or not at all, costs its client two requests at most, and gives no signature.
func TestLyingWitnessTR4(t *testing.T) {
	h := newHistory(t, 30, 30, 'a')
	w := newWitness(t)
	otherLine, err := w.opts.Cosigner.Cosign(h.note(7), now)
	if err != nil {
		t.Fatal(err)
	}
	conflict := func(size string) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", typeSize)
			rw.WriteHeader(http.StatusConflict)
			_, _ = rw.Write([]byte(size))
		}
	}
	says := func(status int, text string) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			rw.WriteHeader(status)
			_, _ = rw.Write([]byte(text))
		}
	}
	for what, lie := range map[string]struct {
		handler http.HandlerFunc
		want    error
	}{
		"always the same size":       {conflict("0\n"), ErrRefused},
		"another size each time":     {conflict("3\n"), ErrRefused},
		"a larger size":              {conflict("21\n"), ErrConflict},
		"a size that no tree has":    {conflict("9223372036854775807\n"), ErrConflict},
		"a negative size":            {conflict("-1\n"), ErrRefused},
		"no number":                  {conflict("twelve\n"), ErrRefused},
		"a conflict without a size":  {says(http.StatusConflict, "9\n"), ErrRefused},
		"no signature":               {says(http.StatusOK, ""), ErrRefused},
		"a signature of another":     {says(http.StatusOK, otherLine), ErrRefused},
		"a line of another name":     {says(http.StatusOK, "— other AAAAAAAAAAAA\n"), ErrRefused},
		"no lines":                   {says(http.StatusOK, "signed"), ErrRefused},
		"more than is read":          {says(http.StatusOK, strings.Repeat("— other AAAAAAAAAAAA\n", 10_000)), ErrRefused},
		"a bad proof":                {says(http.StatusUnprocessableEntity, "no"), ErrRefused},
		"an unknown log":             {says(http.StatusNotFound, "no"), ErrRefused},
		"a failure":                  {says(http.StatusInternalServerError, "no"), ErrUnreachable},
		"a connection that is ended": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, ErrUnreachable},
	} {
		var requests atomic.Int32
		c := serve(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			lie.handler(rw, r)
		}), w.opts.Cosigner.Key())
		line, err := c.Cosign(t.Context(), h.note(20), 0, h.proves)
		if !errors.Is(err, lie.want) || line != "" || requests.Load() > 2 {
			t.Errorf("%s: %q after %d requests, %v, want %v", what, line, requests.Load(), err, lie.want)
		}
	}
	slow := make(chan struct{})
	c := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-slow:
		case <-r.Context().Done():
		}
	}), w.opts.Cosigner.Key())
	defer close(slow)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if line, err := c.Cosign(ctx, h.note(20), 0, h.proves); !errors.Is(err, ErrUnreachable) {
		t.Errorf("a slow witness: %q, %v", line, err)
	}
	c.URL = "http://127.0.0.1:1"
	if line, err := c.Cosign(t.Context(), h.note(20), 0, h.proves); !errors.Is(err, ErrUnreachable) {
		t.Errorf("no witness: %q, %v", line, err)
	}
	if line, err := c.Cosign(t.Context(), h.note(20), 0, func(context.Context, uint64, uint64) ([]tlog.Hash, error) { return nil, context.Canceled }); !errors.Is(err, context.Canceled) {
		t.Errorf("no proof: %q, %v", line, err)
	}
}

// TestOverHTTPTR4: the answers have the form of C2SP tlog-witness.
func TestOverHTTPTR4(t *testing.T) {
	w := newWitness(t)
	h := newHistory(t, 30, 30, 'a')
	for _, step := range []struct {
		method, path, body string
		status             int
		kind, says         string
	}{
		{http.MethodPost, addPath, h.body(0, 9), http.StatusOK, "text/plain; charset=utf-8", "— witness.example/w "},
		{http.MethodPost, addPath, h.body(0, 12), http.StatusConflict, typeSize, "9\n"},
		{http.MethodPost, addPath, "x", http.StatusBadRequest, "text/plain; charset=utf-8", ""},
		{http.MethodPost, addPath, strings.Repeat("x", maxBody+1), http.StatusBadRequest, "text/plain; charset=utf-8", "too large"},
		{http.MethodGet, addPath, "", http.StatusMethodNotAllowed, "text/plain; charset=utf-8", "POST"},
		{http.MethodPost, "/", "", http.StatusNotFound, "text/plain; charset=utf-8", addPath},
	} {
		a := httptest.NewRecorder()
		w.ServeHTTP(a, httptest.NewRequest(step.method, step.path, strings.NewReader(step.body)))
		if a.Code != step.status || a.Header().Get("Content-Type") != step.kind || !strings.Contains(a.Body.String(), step.says) {
			t.Errorf("%s %s: %d %s %q", step.method, step.path, a.Code, a.Header().Get("Content-Type"), a.Body)
		}
	}
}
