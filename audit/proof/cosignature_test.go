package proof

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func cosignerOf(t testing.TB, name string, seed byte) *Cosigner {
	t.Helper()
	c, err := NewCosigner(name, [32]byte{seed})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestCosignaturesTR4: a cosignature verifies under the checkpoint, the witness and the time that
// it was made for, and under nothing else. The cluster's signature stays what verifies the note.
func TestCosignaturesTR4(t *testing.T) {
	notes, keys := notesOf(t, 2)
	w, other := cosignerOf(t, "witness.example/w", 9), cosignerOf(t, "witness.example/w", 8)
	at := time.Unix(1_800_000_000, 0).UTC()
	line, err := w.Cosign(notes[0], at)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ParseWitnessKey(w.Key().String())
	if err != nil {
		t.Fatal(err)
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
	for i := range line {
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

// TestWitnessKeysTR4: a key has one text form, and that of a cluster is none of a witness.
func TestWitnessKeysTR4(t *testing.T) {
	good := cosignerOf(t, "witness.example/w", 9).Key().String()
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
		if _, err := NewCosigner(bad, [32]byte{1}); !errors.Is(err, ErrKey) {
			t.Errorf("name %q: %v", bad, err)
		}
	}
	secret := cosignerOf(t, "witness.example/w", 9).Private()
	if c, err := ParseCosigner(secret); err != nil || c.Key().String() != good {
		t.Errorf("the secret key is read as another: %v", err)
	}
	for _, bad := range []string{"", good, secret[1:], secret + "\n", secret[:len(secret)-4], strings.Replace(secret, "witness", "wintess", 1)} {
		if _, err := ParseCosigner(bad); !errors.Is(err, ErrKey) || len(bad) > 60 && strings.Contains(err.Error(), bad[60:]) {
			t.Errorf("a damaged secret key: %v", err)
		}
	}
	if a, b := cosignerOf(t, "a", 1).Key(), cosignerOf(t, "b", 1).Key(); !a.Same(b) || a.Same(cosignerOf(t, "a", 2).Key()) {
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
