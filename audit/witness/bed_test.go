package witness

import (
	"encoding/binary"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"runlog/audit/proof"
)

var (
	cluster = [16]byte{7}
	now     = time.Unix(1_800_000_000, 0)
)

type fataler interface {
	Helper()
	Fatal(args ...any)
}

// history is a log: its leaves are made of their numbers and of the name of the history from a
// number on.
type history struct {
	t      fataler
	signer *proof.Signer
	stored []tlog.Hash
	size   int64
}

func newHistory(t fataler, size, same int64, name byte) *history {
	t.Helper()
	h := &history{t: t, signer: signerOf(t, cluster, 1)}
	for ; h.size < size; h.size++ {
		data := binary.BigEndian.AppendUint64(nil, uint64(h.size))
		if h.size >= same {
			data = append(data, name)
		}
		hashes, err := tlog.StoredHashes(h.size, data, h)
		if err != nil {
			t.Fatal(err)
		}
		h.stored = append(h.stored, hashes...)
	}
	return h
}

func signerOf(t fataler, cluster [16]byte, seed byte) *proof.Signer {
	t.Helper()
	s, err := proof.NewSigner(cluster, [32]byte{seed})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (h *history) ReadHashes(indexes []int64) (out []tlog.Hash, err error) {
	for _, i := range indexes {
		out = append(out, h.stored[i])
	}
	return out, nil
}

// note signs the checkpoint of a size.
func (h *history) note(size int64) string {
	h.t.Helper()
	root, err := tlog.TreeHash(size, h)
	if err != nil {
		h.t.Fatal(err)
	}
	note, err := h.signer.SignCheckpoint(&proof.Checkpoint{Cluster: cluster, Size: uint64(size), Root: root, Position: uint64(size), CompleteThrough: size})
	if err != nil {
		h.t.Fatal(err)
	}
	return note
}

func (h *history) prove(earlier, later uint64) []tlog.Hash {
	h.t.Helper()
	hashes, err := proof.ProveConsistency(int64(earlier), int64(later), h)
	if err != nil {
		h.t.Fatal(err)
	}
	return hashes
}

// body asks to sign a size.
func (h *history) body(from, size int64) string {
	h.t.Helper()
	c := proof.Consistency{From: uint64(from), Note: h.note(size)}
	if from <= size {
		c.Hashes = h.prove(uint64(from), uint64(size))
	}
	return c.Text()
}

func newWitness(t testing.TB, change ...func(*Options)) *Witness {
	t.Helper()
	opts := optionsOf(t, filepath.Join(t.TempDir(), "state"))
	for _, c := range change {
		c(&opts)
	}
	w, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func optionsOf(t fataler, state string) Options {
	t.Helper()
	cosigner, err := proof.NewCosigner("witness.example/w", [32]byte{9})
	if err != nil {
		t.Fatal(err)
	}
	return Options{
		Cosigner: cosigner, Logs: []string{signerOf(t, cluster, 1).PublicKey()}, State: state, Clock: func() time.Time { return now },
		Logger: slog.New(slog.DiscardHandler),
	}
}
