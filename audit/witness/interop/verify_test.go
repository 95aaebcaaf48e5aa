package interop

import (
	"fmt"
	"strings"
	"testing"

	"filippo.io/torchwood"
	"github.com/transparency-dev/formats/log"
	theirpolicy "github.com/transparency-dev/formats/witness"

	"runlog/audit/policy"
	"runlog/audit/proof"
)

// cosigned returns a checkpoint with the cosignatures of witnesses of ours.
func cosigned(t *testing.T, note string, types ...string) string {
	t.Helper()
	signed := note
	for _, keyType := range types {
		line, err := cosignerOf(t, keyType).Cosign(note, signedAt)
		if err != nil {
			t.Fatal(err)
		}
		signed += line
	}
	return signed
}

// TestTheirVerifiersTR4: public verifiers take checkpoints of a cluster with the signatures of our
// witnesses, and read in them what we have written.
func TestTheirVerifiersTR4(t *testing.T) {
	h := newHistory(t, 1, 40, 40, 'a')
	key := verifierOf(t, h.logKey())
	signed := cosigned(t, h.note(33), keyTypes...)
	c, rest, n, err := log.ParseCheckpoint([]byte(signed), key.Name(), key,
		theirVerifier(t, cosignerOf(t, proof.KeyEd25519).Key()), theirVerifier(t, cosignerOf(t, proof.KeyMLDSA44).Key()))
	if err != nil || c.Size != 33 || c.Origin != key.Name() || len(n.Sigs) != 3 {
		t.Fatalf("formats: %+v, %+v, %v", c, n, err)
	}
	ours, _, err := proof.OpenCheckpoint(signed, h.signer.PublicKey())
	if err != nil || string(c.Hash) != string(ours.Root[:]) || !strings.Contains(ours.Text(), string(rest)) {
		t.Errorf("formats reads %+v and %q, we %+v, %v", c, rest, ours, err)
	}
	verifier, err := torchwood.NewCosignatureVerifier(cosignerOf(t, proof.KeyEd25519).Key().String())
	if err != nil {
		t.Fatal(err)
	}
	both := torchwood.ThresholdPolicy(3, torchwood.OriginPolicy(key.Name()), torchwood.SingleVerifierPolicy(key), torchwood.SingleVerifierPolicy(verifier))
	theirs, n, err := torchwood.VerifyCheckpoint([]byte(signed), both)
	if err != nil || theirs.N != 33 || theirs.Hash != ours.Root || theirs.Extension != string(rest) {
		t.Fatalf("torchwood: %+v, %v", theirs, err)
	}
	if seconds, err := torchwood.CosignatureTimestamp(n.Sigs[1]); err != nil || seconds != signedAt.Unix() {
		t.Errorf("torchwood: signed at %d, %v", seconds, err)
	}
	for what, text := range map[string]string{
		"another tree":   cosigned(t, h.note(32)) + signed[len(h.note(33)):],
		"no cosignature": h.note(33),
	} {
		if _, _, err := torchwood.VerifyCheckpoint([]byte(text), both); err == nil {
			t.Errorf("torchwood takes %s", what)
		}
	}
}

// TestPoliciesTR4: our policies and public ones read the same text, and agree on which witnesses
// are enough. This torchwood has no ML-DSA-44, so it does not read a policy with such a key.
func TestPoliciesTR4(t *testing.T) {
	h := newHistory(t, 1, 40, 40, 'a')
	text := "# A policy of a cluster\nlog " + h.logKey() + "\n"
	for _, keyType := range keyTypes {
		text += fmt.Sprintf("witness %s %s https://%[1]s.example/w\n", keyType, cosignerOf(t, keyType).Key())
	}
	for rules, held := range map[string][]bool{ // signed by none, ed25519, ml-dsa-44, both
		"quorum none":      {true, true, true, true},
		"quorum ed25519":   {false, true, false, true},
		"quorum ml-dsa-44": {false, false, true, true},
		"group g any ed25519 ml-dsa-44\nquorum g":            {false, true, true, true},
		"group g all ed25519 ml-dsa-44\nquorum g":            {false, false, false, true},
		"group g 2 ed25519 ml-dsa-44\ngroup h 1 g\nquorum h": {false, false, false, true},
	} {
		ours, err := policy.Parse([]byte(text + rules + "\n"))
		if err != nil {
			t.Fatalf("%s: %v", rules, err)
		}
		public, err := theirpolicy.ParsePolicy([]byte(text + rules + "\n"))
		if err != nil {
			t.Fatalf("%s: formats: %v", rules, err)
		}
		for i, types := range [][]string{nil, keyTypes[:1], keyTypes[1:], keyTypes} {
			signed := cosigned(t, h.note(33), types...)
			r, err := ours.Verify(signed)
			if err != nil || r.Held != held[i] || public.Satisfied([]byte(signed)) != held[i] {
				t.Errorf("%s by %v: we %+v, %v, formats %t, want %t", rules, types, r, err, public.Satisfied([]byte(signed)), held[i])
			}
		}
	}
}

// TestTorchwoodPolicyTR4: torchwood reads a policy of ours, with the log under its origin, and
// wants the signatures that we want.
func TestTorchwoodPolicyTR4(t *testing.T) {
	h := newHistory(t, 1, 40, 40, 'a')
	text := fmt.Sprintf("log %s\nwitness w %s https://witness.example/w\nquorum w\n", h.logKey(), cosignerOf(t, proof.KeyEd25519).Key())
	ours, err := policy.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	public, err := torchwood.ParsePolicy([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	stranger := newHistory(t, 2, 40, 40, 'a')
	for _, c := range []struct {
		note  string
		types []string
		held  bool
	}{
		{h.note(33), keyTypes, true}, {h.note(33), keyTypes[:1], true}, {h.note(33), keyTypes[1:], false}, {h.note(33), nil, false},
		{stranger.note(33), keyTypes, false},
	} {
		signed := cosigned(t, c.note, c.types...)
		r, err := ours.Verify(signed)
		_, _, theirs := torchwood.VerifyCheckpoint([]byte(signed), public)
		if held := err == nil && r.Held; held != c.held || (theirs == nil) != c.held {
			t.Errorf("by %v: we %+v, %v, torchwood %v, want %t", c.types, r, err, theirs, c.held)
		}
	}
}
