package interop

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	formats "github.com/transparency-dev/formats/note"
	theirhttp "github.com/transparency-dev/witness/client/http"
	theirs "github.com/transparency-dev/witness/witness"
	"golang.org/x/mod/sumdb/note"

	"runlog/audit/proof"
	"runlog/audit/witness"
)

// newOurs starts our witness for the key of a cluster, and returns the public client of it.
func newOurs(t *testing.T, keyType, clusterKey string) theirhttp.Witness {
	t.Helper()
	w, err := witness.New(witness.Options{Cosigner: cosignerOf(t, keyType), Logs: []string{clusterKey},
		State: filepath.Join(t.TempDir(), "state"), Clock: func() time.Time { return signedAt }, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return theirhttp.NewWitness(at, http.DefaultClient)
}

// hashes returns a proof as the public client takes it.
func (h *history) hashes(earlier, later uint64) (raw [][]byte) {
	h.t.Helper()
	if earlier > later {
		return nil
	}
	all, err := h.prove(h.t.Context(), earlier, later)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, hash := range all {
		raw = append(raw, hash[:])
	}
	return raw
}

// TestOurWitnessTR4: our witness signs for the public client as a log grows, and the public
// verifier takes its signatures.
func TestOurWitnessTR4(t *testing.T) {
	h := newHistory(t, 1, 300, 300, 'a')
	for _, keyType := range keyTypes {
		ours := newOurs(t, keyType, h.signer.PublicKey())
		old := uint64(0)
		for _, size := range []uint64{5, 5, 9, 256, 300} {
			signed := h.note(int64(size))
			lines, _, err := ours.Update(t.Context(), old, []byte(signed), h.hashes(old, size))
			if err != nil {
				t.Fatalf("%s: %d: %v", keyType, size, err)
			}
			n, err := note.Open([]byte(signed+string(lines)), note.VerifierList(theirVerifier(t, cosignerOf(t, keyType).Key())))
			if err != nil || len(n.Sigs) != 1 {
				t.Fatalf("%s: %d: %v in %s", keyType, size, err, lines)
			}
			if at, err := formats.CoSigV1Timestamp(n.Sigs[0]); err != nil || !at.Equal(signedAt) {
				t.Errorf("%s: %d: signed at %s, %v", keyType, size, at, err)
			}
			old = size
		}
	}
}

// TestOurRefusalsTR4: the public client understands each answer of our witness that is no
// signature.
func TestOurRefusalsTR4(t *testing.T) {
	h, other := newHistory(t, 1, 40, 40, 'a'), newHistory(t, 1, 40, 5, 'b')
	ours := newOurs(t, proof.KeyEd25519, h.signer.PublicKey())
	if _, _, err := ours.Update(t.Context(), 0, []byte(h.note(20)), nil); err != nil {
		t.Fatal(err)
	}
	private, _, err := note.GenerateKey(nil, "other.example/log")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	body := "other.example/log\n1\n" + strings.SplitN(h.note(1), "\n", 4)[2] + "\n"
	ofOthers, err := note.Sign(&note.Note{Text: body}, signer)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		what  string
		old   uint64
		note  string
		proof [][]byte
		want  error
		size  uint64
	}{
		{"another size than it has", 5, h.note(30), h.hashes(5, 30), theirs.ErrCheckpointStale, 20},
		{"no size", 0, h.note(30), nil, theirs.ErrCheckpointStale, 20},
		{"another tree of this size", 20, other.note(20), nil, theirs.ErrInvalidProof, 0},
		{"another tree of a larger size", 20, other.note(30), other.hashes(20, 30), theirs.ErrInvalidProof, 0},
		{"a smaller tree", 20, h.note(10), nil, theirs.ErrOldSizeInvalid, 0},
		{"another key", 20, newHistory(t, 2, 30, 30, 'a').note(30), h.hashes(20, 30), theirs.ErrNoValidSignature, 0},
		{"a log of others", 0, string(ofOthers), nil, theirs.ErrUnknownLog, 0},
	} {
		lines, size, err := ours.Update(t.Context(), step.old, []byte(step.note), step.proof)
		if !errors.Is(err, step.want) || size != step.size {
			t.Errorf("%s: %q, %d, %v, want %d, %v", step.what, lines, size, err, step.size, step.want)
		}
	}
	if _, _, err := ours.Update(t.Context(), 20, []byte(h.note(30)), h.hashes(20, 30)); err != nil {
		t.Error(fmt.Errorf("after these: %w", err))
	}
}
