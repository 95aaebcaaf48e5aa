package interop

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	formats "github.com/transparency-dev/formats/note"
	"github.com/transparency-dev/witness/persistence/inmemory"
	theirs "github.com/transparency-dev/witness/witness"
	"golang.org/x/mod/sumdb/note"

	"runlog/audit/policy"
	"runlog/audit/proof"
	"runlog/audit/witness"
)

// public is the public witness, with a key of each type, and the statuses that it answered with.
type public struct {
	url      string
	statuses []int
}

// newPublic starts the public witness for one log. It gets its keys in the text form in which our
// witness keeps them.
func newPublic(t *testing.T, logKey string) *public {
	t.Helper()
	var signers []note.Signer
	for _, keyType := range keyTypes {
		s, err := formats.NewSignerForCosignatureV1(cosignerOf(t, keyType).Private())
		if err != nil {
			t.Fatal(err)
		}
		signers = append(signers, s)
	}
	verifier := verifierOf(t, logKey)
	w, err := theirs.New(t.Context(), theirs.Opts{Persistence: inmemory.New(), Signers: signers,
		VerifierForLog: func(_ context.Context, origin string) (note.Verifier, bool, error) {
			return verifier, origin == verifier.Name(), nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	p := &public{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /w/add-checkpoint", func(rw http.ResponseWriter, r *http.Request) {
		seen := &statusWriter{ResponseWriter: rw, status: http.StatusOK}
		theirs.NewHTTPHandler(w).AddCheckpoint(seen, r)
		p.statuses = append(p.statuses, seen.status)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	p.url = server.URL + "/w"
	return p
}

// statusWriter remembers the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// client returns ours, which takes the signatures of a type.
func (p *public) client(t *testing.T, keyType string) *witness.Client {
	return &witness.Client{URL: p.url, Key: cosignerOf(t, keyType).Key(), HTTP: http.DefaultClient}
}

// TestTheirWitnessTR4: the public witness signs for our client as a log grows, with keys of both
// types, and a policy of ours counts it. A client that is wrong about the size learns it.
func TestTheirWitnessTR4(t *testing.T) {
	started := time.Now().Truncate(time.Second)
	h := newHistory(t, 1, 300, 300, 'a')
	p := newPublic(t, h.logKey())
	text := "log " + h.signer.PublicKey() + "\n"
	for _, keyType := range keyTypes {
		text += "witness " + keyType + " " + cosignerOf(t, keyType).Key().String() + " " + p.url + "\n"
	}
	rules, err := policy.Parse([]byte(text + "group both all ed25519 ml-dsa-44\nquorum both\n"))
	if err != nil {
		t.Fatal(err)
	}
	const ok, conflict = http.StatusOK, http.StatusConflict
	for _, step := range []struct {
		from uint64 // as the client believes
		size int64
		want []int
	}{
		{0, 4, []int{ok}}, {4, 4, []int{ok}}, {4, 9, []int{ok}}, {9, 256, []int{ok}},
		{0, 257, []int{conflict, ok}}, {9, 299, []int{conflict, ok}}, {300, 300, []int{conflict, ok}},
	} {
		note := h.note(step.size)
		signed := note
		for i, keyType := range keyTypes {
			from, want := step.from, step.want
			if i > 0 { // The witness has this size by now.
				from, want = uint64(step.size), []int{ok}
			}
			p.statuses = nil
			line, err := p.client(t, keyType).Cosign(t.Context(), note, from, h.prove)
			if err != nil || !slices.Equal(p.statuses, want) {
				t.Fatalf("%s: from %d to %d: %v, %v, want %v", keyType, from, step.size, p.statuses, err, want)
			}
			signed += line
		}
		r, err := rules.Verify(signed)
		if err != nil || !r.Held {
			t.Fatalf("%d: %+v, %v", step.size, r, err)
		}
		for _, w := range r.Witnesses {
			if w.At.Before(started) {
				t.Errorf("%d: %s signed at %s, before the test", step.size, w.Name, w.At)
			}
		}
	}
}

// TestTheirRefusalsTR4: what the public witness does not sign is what our client says of it.
func TestTheirRefusalsTR4(t *testing.T) {
	h, other := newHistory(t, 1, 40, 40, 'a'), newHistory(t, 1, 40, 5, 'b')
	p := newPublic(t, h.logKey())
	for _, keyType := range keyTypes {
		c := p.client(t, keyType)
		if _, err := c.Cosign(t.Context(), h.note(20), 0, h.prove); err != nil {
			t.Fatal(err)
		}
		unknown, err := h.signer.SignCheckpoint(&proof.Checkpoint{Cluster: cluster})
		if err != nil {
			t.Fatal(err)
		}
		for what, step := range map[string]struct {
			note string
			from uint64
			h    *history
			last int
			want error
		}{
			"another tree of this size":      {other.note(20), 20, other, http.StatusUnprocessableEntity, witness.ErrConflict},
			"another tree, after a conflict": {other.note(20), 0, other, http.StatusUnprocessableEntity, witness.ErrConflict},
			"another tree of a larger size":  {other.note(30), 20, other, http.StatusUnprocessableEntity, witness.ErrRefused},
			"a smaller tree":                 {h.note(12), 0, h, http.StatusConflict, witness.ErrConflict},
			// tlog-witness wants 403, which would be ErrRefused.
			"another key":                   {newHistory(t, 2, 40, 40, 'a').note(20), 20, h, http.StatusInternalServerError, witness.ErrUnreachable},
			"a log that it does not follow": {unknown, 0, h, http.StatusNotFound, witness.ErrRefused},
		} {
			line, err := c.Cosign(t.Context(), step.note, step.from, step.h.prove)
			if last := p.statuses[len(p.statuses)-1]; !errors.Is(err, step.want) || last != step.last {
				t.Errorf("%s: %q, %v after %d, want %v after %d", what, line, err, last, step.want, step.last)
			}
		}
	}
}
