package proof

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

var keyTypes = []string{KeyEd25519, KeyMLDSA44}

func cosignerOf(t testing.TB, keyType, name string, seed byte) *Cosigner {
	t.Helper()
	c, err := NewCosignerOfType(keyType, name, [32]byte{seed})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestCosignaturesTR4: a cosignature verifies under the checkpoint, the witness and the time that
// it was made for, and under nothing else. The cluster's signature stays what verifies the note.
func TestCosignaturesTR4(t *testing.T) {
	for _, keyType := range keyTypes {
		t.Run(keyType, func(t *testing.T) { testCosignatures(t, keyType) })
	}
}

func testCosignatures(t *testing.T, keyType string) {
	notes, keys := notesOf(t, 2)
	w, other := cosignerOf(t, keyType, "witness.example/w", 9), cosignerOf(t, keyType, "witness.example/w", 8)
	at := time.Unix(1_800_000_000, 0).UTC()
	line, err := w.Cosign(notes[0], at)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ParseWitnessKey(w.Key().String())
	if err != nil || key.Type() != keyType {
		t.Fatal(key, err)
	}
	signed := notes[0] + line
	for _, want := range []*WitnessKey{key, w.Key()} {
		got, err := Cosignatures(signed, other.Key(), want)
		if err != nil || len(got) != 1 || got[0].Key != want || !got[0].At.Equal(at) || got[0].Line != line {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	if _, _, err := OpenCheckpoint(signed, keys...); err != nil {
		t.Errorf("the cluster's signature: %v", err)
	}
	if got, err := Cosignatures(signed, other.Key()); err != nil || len(got) != 0 {
		t.Errorf("%+v, %v: of a witness that has not signed", got, err)
	}
	if got, err := Cosignatures(notes[1]+line, key); !errors.Is(err, ErrSignature) {
		t.Errorf("under another checkpoint: %+v, %v", got, err)
	}
	later, err := w.Cosign(signed, at.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{signed + later, notes[0] + later + line} {
		if got, err := Cosignatures(text, key); err != nil || len(got) != 1 || got[0].Line != later {
			t.Errorf("of two the later one: %+v, %v", got, err)
		}
	}
	const most = 400 // ML-DSA-44 is slow to verify with the race detector.
	for i := 0; i < len(line); i += 1 + len(line)/most {
		changed := []byte(line)
		changed[i] ^= 1
		if got, err := Cosignatures(notes[0]+string(changed), key); err == nil && len(got) > 0 {
			t.Fatalf("byte %d changed: taken", i)
		}
	}
	for _, bad := range []time.Time{{}, time.Unix(0, 0)} {
		if _, err := w.Cosign(notes[0], bad); err == nil {
			t.Errorf("cosigned at %s", bad)
		}
	}
}

// TestCosignedTR4: an Ed25519 cosignature covers all lines of a checkpoint. One of ML-DSA-44 covers
// the witness, the time and the tree alone, in the form of C2SP tlog-cosignature.
func TestCosignedTR4(t *testing.T) {
	c := &Checkpoint{Cluster: [16]byte{7}, Incarnation: [8]byte{1}, Size: 300, Root: [32]byte{2, 3}, Position: 400, CompleteThrough: 5e9, Runs: 6}
	other := *c
	other.Heads = [32]byte{8}
	const want = "737562747265652f76310a00" + "0577756c6172" + "000000006b49d200" +
		"38" + "72756e6c6f672f3037303030303030303030303030303030303030303030303030303030303030" + "2f30313030303030303030303030303030" +
		"0000000000000000" + "000000000000012c" + "0203" + "000000000000000000000000000000000000000000000000000000000000"
	got, err := treeMessage("wular", c.Text(), 1_800_000_000)
	if hex.EncodeToString(got) != want || err != nil {
		t.Errorf("%x, %v", got, err)
	}
	for keyType, covered := range map[string]bool{KeyEd25519: true, KeyMLDSA44: false} {
		w := cosignerOf(t, keyType, "wular", 9)
		line, err := w.Cosign(c.Text()+"\n", time.Unix(1_800_000_000, 0))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Cosignatures(other.Text()+"\n"+line, w.Key()); errors.Is(err, ErrSignature) != covered || !covered && err != nil {
			t.Errorf("%s with other heads: %v", keyType, err)
		}
		tree := *c
		tree.Size++
		for what, text := range map[string]string{"another tree": tree.Text(), "no checkpoint": "one\ntwo\nthree\n"} {
			if got, err := Cosignatures(text+"\n"+line, w.Key()); !errors.Is(err, ErrSignature) {
				t.Errorf("%s with %s: %+v, %v", keyType, what, got, err)
			}
		}
	}
	if line, err := cosignerOf(t, KeyMLDSA44, "w", 9).Cosign("one\ntwo\nthree\n\n", time.Unix(1, 0)); !errors.Is(err, ErrStatement) {
		t.Errorf("cosigned what is no checkpoint: %q, %v", line, err)
	}
}

// TestWitnessKeysTR4: a key has one text form, and that of a cluster is none of a witness.
func TestWitnessKeysTR4(t *testing.T) {
	for _, keyType := range keyTypes {
		t.Run(keyType, func(t *testing.T) { testWitnessKeys(t, keyType) })
	}
	long := strings.Repeat("w", 256)
	if _, err := NewCosignerOfType(KeyMLDSA44, long, [32]byte{1}); !errors.Is(err, ErrKey) {
		t.Errorf("a name that does not fit: %v", err)
	}
	if _, err := NewCosignerOfType(KeyMLDSA44, long[1:], [32]byte{1}); err != nil {
		t.Errorf("the longest name: %v", err)
	}
	if _, err := NewCosignerOfType("rsa", "w", [32]byte{1}); !errors.Is(err, ErrKey) || !strings.Contains(err.Error(), "they are ed25519 and ml-dsa-44") {
		t.Errorf("another type: %v", err)
	}
	if cosignerOf(t, KeyEd25519, "a", 1).Key().Same(cosignerOf(t, KeyMLDSA44, "a", 1).Key()) {
		t.Error("keys of two types are the same")
	}
}

func testWitnessKeys(t *testing.T, keyType string) {
	good := cosignerOf(t, keyType, "witness.example/w", 9).Key().String()
	name, rest, _ := strings.Cut(good, "+")
	id, key, _ := strings.Cut(rest, "+")
	for _, bad := range []string{
		"", name, name + "+" + id, "other+" + rest, "+" + rest, "a b+" + rest, name + "+" + strings.ToUpper(id) + "x+" + key,
		name + "+00000000+" + key, good + "=", good + "\n", good[:len(good)-4], signerOf(t, 1).PublicKey(), name + "+" + id + "+",
	} {
		if k, err := ParseWitnessKey(bad); !errors.Is(err, ErrKey) {
			t.Errorf("%q: %v, %v", bad, k, err)
		}
	}
	for _, bad := range []string{"", "two words", "plus+plus", "line\n"} {
		if _, err := NewCosignerOfType(keyType, bad, [32]byte{1}); !errors.Is(err, ErrKey) {
			t.Errorf("name %q: %v", bad, err)
		}
	}
	secret := cosignerOf(t, keyType, "witness.example/w", 9).Private()
	if c, err := ParseCosigner(secret); err != nil || c.Key().String() != good {
		t.Errorf("the secret key is read as another: %v", err)
	}
	for _, bad := range []string{"", good, secret[1:], secret + "\n", secret[:len(secret)-4], strings.Replace(secret, "witness", "wintess", 1)} {
		if _, err := ParseCosigner(bad); !errors.Is(err, ErrKey) || len(bad) > 60 && strings.Contains(err.Error(), bad[60:]) {
			t.Errorf("a damaged secret key: %v", err)
		}
	}
	if a, b := cosignerOf(t, keyType, "a", 1).Key(), cosignerOf(t, keyType, "b", 1).Key(); !a.Same(b) || a.Same(cosignerOf(t, keyType, "a", 2).Key()) {
		t.Error("keys are not told apart by their secret part")
	}
}

// TestTooManyCosignaturesTR4: the work of a verifier is bounded.
func TestTooManyCosignaturesTR4(t *testing.T) {
	notes, _ := notesOf(t, 1)
	var many strings.Builder
	for i := range maxSignatures {
		fmt.Fprintf(&many, "— w%d AAAAAAAAAAAA\n", i)
	}
	for _, text := range []string{notes[0] + many.String(), notes[0] + "— w " + strings.Repeat("A", maxNote) + "\n", "no note", notes[0] + "no line\n"} {
		if _, err := Cosignatures(text); !errors.Is(err, ErrNote) {
			t.Errorf("%d bytes: %v", len(text), err)
		}
	}
}
