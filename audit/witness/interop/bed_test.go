package interop

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	formats "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"runlog/audit/proof"
)

var (
	cluster     = [16]byte{7}
	incarnation = [8]byte{9}
	keyTypes    = []string{proof.KeyEd25519, proof.KeyMLDSA44}
	signedAt    = time.Unix(1_800_000_000, 0) // by the clock of our witness
)

// history is a log, whose leaves are made of their numbers, and from a number on of its name.
type history struct {
	t      *testing.T
	signer *proof.Signer
	stored []tlog.Hash
}

// newHistory has as many leaves as a test asks for at most.
func newHistory(t *testing.T, seed byte, size, same int64, name byte) *history {
	t.Helper()
	signer, err := proof.NewSigner(cluster, [32]byte{seed})
	if err != nil {
		t.Fatal(err)
	}
	h := &history{t: t, signer: signer}
	for i := range size {
		data := binary.BigEndian.AppendUint64(nil, uint64(i))
		if i >= same {
			data = append(data, name)
		}
		hashes, err := tlog.StoredHashes(i, data, h)
		if err != nil {
			t.Fatal(err)
		}
		h.stored = append(h.stored, hashes...)
	}
	return h
}

// ReadHashes implements tlog.HashReader.
func (h *history) ReadHashes(indexes []int64) (all []tlog.Hash, err error) {
	for _, i := range indexes {
		all = append(all, h.stored[i])
	}
	return all, nil
}

// note signs the checkpoint of a size.
func (h *history) note(size int64) string {
	h.t.Helper()
	root, err := tlog.TreeHash(size, h)
	if err != nil {
		h.t.Fatal(err)
	}
	signed, err := h.signer.SignCheckpoint(&proof.Checkpoint{Cluster: cluster, Incarnation: incarnation, Size: uint64(size), Root: root,
		Position: uint64(size), CompleteThrough: size * int64(time.Second)})
	if err != nil {
		h.t.Fatal(err)
	}
	return signed
}

// prove is what witness.Client asks for.
func (h *history) prove(_ context.Context, earlier, later uint64) ([]tlog.Hash, error) {
	return proof.ProveConsistency(int64(earlier), int64(later), h)
}

// logKey returns the public key of the log under its origin, as other programs want it.
func (h *history) logKey() string {
	h.t.Helper()
	key, err := proof.CheckpointKey(h.signer.PublicKey(), incarnation)
	if err != nil {
		h.t.Fatal(err)
	}
	return key
}

func verifierOf(t *testing.T, key string) note.Verifier {
	t.Helper()
	v, err := note.NewVerifier(key)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func cosignerOf(t *testing.T, keyType string) *proof.Cosigner {
	t.Helper()
	c, err := proof.NewCosignerOfType(keyType, "witness.example/"+keyType, [32]byte{9})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// theirVerifier returns the public verifier of a witness's cosignatures.
func theirVerifier(t *testing.T, key *proof.WitnessKey) note.Verifier {
	t.Helper()
	v, err := formats.NewVerifierForCosignatureV1(key.String())
	if err != nil {
		t.Fatal(err)
	}
	return v
}
