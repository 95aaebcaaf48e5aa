package proof

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// notesOf are checkpoints of one log that grows; the key is rotated in the middle.
func notesOf(t testing.TB, n int) (notes []string, keys []string) {
	t.Helper()
	for i := range n {
		s := signerOf(t, byte(1+2*i/n))
		c := &Checkpoint{Cluster: [16]byte{7}, Size: uint64(3 * i), Runs: uint64(i + 1), Position: uint64(10*i + 5), CompleteThrough: int64(i) * 1e9}
		note, err := s.SignCheckpoint(c)
		if err != nil {
			t.Fatal(err)
		}
		if notes = append(notes, note); !slices.Contains(keys, s.PublicKey()) {
			keys = append(keys, s.PublicKey())
		}
	}
	return notes, keys
}

func signerOf(t testing.TB, seed byte) *Signer {
	t.Helper()
	s, err := NewSigner([16]byte{7}, [32]byte{seed})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestKeptCheckpoints: checkpoints that were kept verify one by one and together, in any order, and
// given twice.
func TestKeptCheckpoints(t *testing.T) {
	notes, keys := notesOf(t, 5)
	for i, note := range notes {
		got, err := VerifyCheckpoints([]string{note}, keys...)
		if err != nil || len(got) != 1 || got[0].Runs != uint64(i+1) || !slices.Contains(keys, got[0].Key) {
			t.Fatalf("%d: %+v, %v", i, got, err)
		}
	}
	for _, given := range [][]string{notes, {notes[3], notes[1], notes[2]}, {notes[4], notes[3], notes[4]}, append(slices.Clone(notes), notes...)} {
		got, err := VerifyCheckpoints(given, keys...)
		if err != nil || len(got) == 0 || !slices.IsSortedFunc(got, func(a, b KeptCheckpoint) int { return int(a.Position) - int(b.Position) }) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if _, err := VerifyCheckpoints(notes, keys[0]); !errors.Is(err, ErrUnknownKey) || !strings.Contains(err.Error(), "checkpoint 4: ") {
		t.Errorf("without the newer key: %v", err)
	}
}

// TestTamperedCheckpoints: any byte of a kept checkpoint that is changed is found, and so are
// checkpoints that cannot both be of one log.
func TestTamperedCheckpoints(t *testing.T) {
	notes, keys := notesOf(t, 4)
	note := notes[1]
	for i := range note {
		changed := []byte(note)
		changed[i] ^= 1
		if _, err := VerifyCheckpoints([]string{string(changed)}, keys...); err == nil {
			t.Errorf("byte %d changed: taken", i)
		}
		if _, err := VerifyCheckpoints([]string{note[:i]}, keys...); err == nil {
			t.Errorf("cut at %d: taken", i)
		}
	}
	resigned := func(i int, change func(*Checkpoint)) string {
		c, _, err := PeekCheckpoint(notes[i])
		if err != nil {
			t.Fatal(err)
		}
		change(c)
		changed, err := signerOf(t, 1).SignCheckpoint(c)
		if err != nil {
			t.Fatal(err)
		}
		return changed
	}
	signature := note[strings.LastIndex(note, "— "):]
	foreign, err := NewSigner([16]byte{8}, [32]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	other, err := foreign.SignCheckpoint(&Checkpoint{Cluster: [16]byte{8}, Position: 99})
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		notes []string
		err   error
		says  string
	}{
		"another root":    {[]string{notes[0], notes[1], resigned(1, func(c *Checkpoint) { c.Root[3]++ })}, ErrContradiction, "different roots"},
		"of one position": {[]string{notes[1], resigned(1, func(c *Checkpoint) { c.Size++ })}, ErrContradiction, "cannot both be"},
		"other heads":     {[]string{notes[1], resigned(1, func(c *Checkpoint) { c.Heads[0]++ })}, ErrContradiction, "cannot both be"},
		"larger before":   {[]string{notes[1], resigned(1, func(c *Checkpoint) { c.Size, c.Position = 9, 3 })}, ErrContradiction, "cannot both be"},
		"back in time":    {[]string{notes[0], resigned(1, func(c *Checkpoint) { c.CompleteThrough = -1 })}, ErrContradiction, "cannot both be"},
		"fewer runs":      {[]string{notes[1], resigned(2, func(c *Checkpoint) { c.Runs = 1 })}, ErrContradiction, "cannot both be"},
		"signed twice":    {[]string{note + signature}, ErrNote, "exactly one"},
		"not signed":      {[]string{strings.TrimSuffix(note, signature)}, ErrUnsigned, ""},
		"a stranger's":    {[]string{other}, ErrUnknownKey, ""},
		"of another's name": {[]string{func() string {
			note, err := signerOf(t, 1).SignCheckpoint(&Checkpoint{Cluster: [16]byte{8}})
			if err != nil {
				t.Fatal(err)
			}
			return note
		}()}, ErrUnknownKey, "none of its signatures"},
		"another statement": {[]string{func() string {
			note, err := signerOf(t, 1).Sign(&Statement{Title: "runlog export 1"})
			if err != nil {
				t.Fatal(err)
			}
			return note
		}()}, ErrStatement, ""},
	} {
		if _, err := VerifyCheckpoints(c.notes, keys...); !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, given := range map[string][]string{
		"two clusters": {notes[0], other},
		"another log":  {notes[1], resigned(1, func(c *Checkpoint) { c.Incarnation[0]++; c.Root[0]++ })},
		"one left out": {notes[0], notes[2]},
		"one repeated": {notes[0], notes[0]},
	} {
		if _, err := VerifyCheckpoints(given, append(slices.Clone(keys), foreign.PublicKey())...); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestSplitCheckpoints: notes one behind the other come apart again, whatever is between them that
// jq or cat puts there.
func TestSplitCheckpoints(t *testing.T) {
	notes, _ := notesOf(t, 3)
	for _, between := range []string{"", "\n"} {
		got, err := SplitCheckpoints(strings.Join(notes, between) + between)
		if err != nil || !slices.Equal(got, notes) {
			t.Errorf("with %q between: %q, %v", between, got, err)
		}
	}
	for _, bad := range []string{notes[0][:len(notes[0])-1], "x", notes[0] + "x", notes[0] + "\n\n"} {
		if got, err := SplitCheckpoints(bad); !errors.Is(err, ErrNote) {
			t.Errorf("%q: %q, %v", bad, got, err)
		}
	}
}

// FuzzSplitCheckpoints: nothing of a text is lost but empty lines between notes.
func FuzzSplitCheckpoints(f *testing.F) {
	notes, keys := notesOf(f, 2)
	f.Add(notes[0])
	f.Add(strings.Join(notes, "\n") + "\n")
	f.Add(notes[0] + notes[1][5:])
	f.Add("\n\n— ")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := SplitCheckpoints(text)
		if err != nil {
			return
		}
		rest := text
		for _, note := range got {
			if note == "" || !strings.HasPrefix(rest, note) {
				t.Fatalf("%q is no part of %q", note, rest)
			}
			rest = strings.TrimPrefix(rest[len(note):], "\n")
		}
		if rest != "" {
			t.Fatalf("%q is left of %q", rest, text)
		}
		if all, err := VerifyCheckpoints(got, keys...); err == nil {
			for _, k := range all {
				if fmt.Sprint(k.Runs) != "1" && fmt.Sprint(k.Runs) != "2" {
					t.Fatalf("verifies: %+v", k)
				}
			}
		}
	})
}
