package interop

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	formats "github.com/transparency-dev/formats/note"
	"github.com/transparency-dev/witness/omniwitness"
	"github.com/transparency-dev/witness/persistence/inmemory"
	"golang.org/x/mod/sumdb/note"

	"runlog/audit/policy"
	"runlog/audit/proof"
	"runlog/audit/witness"
	"runlog/server/servertest"
)

// public is the public witness, with a key of each type, and the statuses that it answered our
// client with.
type public struct {
	url      string
	statuses []int
}

// yamlField is a line of the configuration in docs/witness.md whose value is an example.
var yamlField = regexp.MustCompile(`(?m)^(.*(Origin|PublicKey): ).*$`)

// newPublic starts the public witness for one log, with the configuration that docs/witness.md
// shows. Its files of keys are those of our witness.
func newPublic(t *testing.T, logKey string) *public {
	t.Helper()
	var signers []note.Signer
	for _, keyType := range keyTypes {
		s, err := formats.NewSignerForCosignatureV1(cosignerOf(t, keyType).Private() + "\n")
		if err != nil {
			t.Fatal(err)
		}
		signers = append(signers, s)
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "witness.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(page), "\n```yaml\n")
	text, _, closed := strings.Cut(text, "\n```\n")
	if !ok || !closed {
		t.Fatal("docs/witness.md has no YAML")
	}
	logs, err := omniwitness.NewStaticLogConfig([]byte(yamlField.ReplaceAllStringFunc(text, func(line string) string {
		parts := yamlField.FindStringSubmatch(line)
		return parts[1] + map[string]string{"Origin": verifierOf(t, logKey).Name(), "PublicKey": logKey}[parts[2]]
	})))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", servertest.Loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- omniwitness.Main(ctx, omniwitness.OperatorConfig{WitnessKeys: signers, Logs: logs}, inmemory.New(), listener, http.DefaultClient)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return &public{url: "http://" + listener.Addr().String()}
}

// RoundTrip implements http.RoundTripper.
func (p *public) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil {
		p.statuses = append(p.statuses, resp.StatusCode)
	}
	return resp, err
}

// client returns ours, which takes the signatures of a type.
func (p *public) client(t *testing.T, keyType string) *witness.Client {
	t.Helper()
	return &witness.Client{URL: p.url, Key: cosignerOf(t, keyType).Key(), HTTP: &http.Client{Transport: p}}
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
			"another tree of a larger size":  {other.note(30), 20, other, http.StatusUnprocessableEntity, witness.ErrConflict},
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
