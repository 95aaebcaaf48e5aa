package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"runlog/audit/proof"
)

var testCluster = [16]byte{7}

func logSigner(t testing.TB, seed byte) *proof.Signer {
	t.Helper()
	s, err := proof.NewSigner(testCluster, [32]byte{seed})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func cosignerOf(t testing.TB, seed byte) *proof.Cosigner {
	t.Helper()
	keyType := proof.KeyEd25519
	if seed%2 == 0 { // Both types count alike.
		keyType = proof.KeyMLDSA44
	}
	c, err := proof.NewCosignerOfType(keyType, fmt.Sprintf("w.example/%d", seed), [32]byte{seed})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// noteOf returns a checkpoint with the cosignatures of some witnesses, each at its number in
// seconds.
func noteOf(t testing.TB, by *proof.Signer, incarnation byte, witnesses ...byte) string {
	t.Helper()
	note, err := by.SignCheckpoint(&proof.Checkpoint{Cluster: testCluster, Incarnation: [8]byte{incarnation}, Size: 3, Runs: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range witnesses {
		line, err := cosignerOf(t, w).Cosign(note, time.Unix(int64(w), 0))
		if err != nil {
			t.Fatal(err)
		}
		note += line
	}
	return note
}

// head returns the lines of the log and of witnesses 11 to 14, named a to d.
func head(t testing.TB) string {
	text := "# A policy\n\nlog " + logSigner(t, 1).PublicKey() + " https://log.example\n"
	for i, name := range []string{"a", "b", "c", "d"} {
		text += "\twitness " + name + "  " + cosignerOf(t, byte(11+i)).Key().String() + "\n"
	}
	return text
}

// TestQuorumTR4: a checkpoint fulfils a policy if, and only if, the witnesses of a quorum cosigned.
func TestQuorumTR4(t *testing.T) {
	by := logSigner(t, 1)
	for rules, quorums := range map[string][]bool{ // of no witness, a, a b, a c, a b c, d
		"quorum none":               {true, true, true, true, true, true},
		"quorum a":                  {false, true, true, true, true, false},
		"group g any a b\nquorum g": {false, true, true, true, true, false},
		"group g all a b\nquorum g": {false, false, true, false, true, false},
		"group g 2 a b c\nquorum g": {false, false, true, true, true, false},
		"group x any a b\ngroup y any c d\ngroup g all x y\nquorum g": {false, false, false, true, true, false},
		"group x all a b\ngroup g any x d\nquorum g":                  {false, false, true, false, true, true},
	} {
		p, err := Parse([]byte(head(t) + rules + "\n"))
		if err != nil {
			t.Fatalf("%s: %v", rules, err)
		}
		for i, who := range [][]byte{nil, {11}, {11, 12}, {11, 13}, {11, 12, 13}, {14}} {
			r, err := p.Verify(noteOf(t, by, 0, append(who, 99)...))
			if err != nil {
				t.Fatal(err)
			}
			if r.Held != quorums[i] || r.Key != by.PublicKey() || r.Checkpoint.Size != 3 || len(r.Witnesses) != 4 {
				t.Errorf("%q, witnesses %v: %+v", rules, who, r)
			}
			for j, w := range r.Witnesses {
				seed := byte(11 + j)
				if signed := strings.Contains(string(who), string(rune(seed))); signed != !w.At.IsZero() || signed && w.At.Unix() != int64(seed) {
					t.Errorf("%q, witnesses %v: %s at %s", rules, who, w.Name, w.At)
				}
			}
		}
	}
}

// TestLogsTR4: the cluster's key stands for each incarnation, the key of an origin for one.
func TestLogsTR4(t *testing.T) {
	by := logSigner(t, 1)
	origin, err := proof.CheckpointKey(by.PublicKey(), [8]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text string
		by   *proof.Signer
		inc  byte
		want error
	}{
		{"log " + by.PublicKey() + "\nquorum none\n", by, 1, nil},
		{"log " + by.PublicKey() + "\nquorum none\n", by, 2, nil},
		{"log " + origin + "\nquorum none\n", by, 1, nil},
		{"log " + origin + "\nquorum none\n", by, 2, proof.ErrUnknownKey},
		{"log " + by.PublicKey() + "\nquorum none\n", logSigner(t, 2), 1, proof.ErrUnknownKey},
		{"quorum none\n", by, 1, proof.ErrUnknownKey},
	} {
		p, err := Parse([]byte(c.text))
		if err != nil {
			t.Fatal(err)
		}
		if r, err := p.Verify(noteOf(t, c.by, c.inc)); !errors.Is(err, c.want) {
			t.Errorf("%q, incarnation %d: %+v, %v", c.text, c.inc, r, err)
		}
	}
	p, err := Parse([]byte("quorum none\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Verify(noteOf(t, by, 1), by.PublicKey()); err != nil {
		t.Errorf("with a key of the caller: %v", err)
	}
}

// TestForgedCosignatureTR4: a note with a signature that claims a witness and is not by it is none.
func TestForgedCosignatureTR4(t *testing.T) {
	by := logSigner(t, 1)
	p, err := Parse([]byte(head(t) + "quorum a\n"))
	if err != nil {
		t.Fatal(err)
	}
	signed := noteOf(t, by, 1, 11)
	line := signed[strings.LastIndex(strings.TrimSuffix(signed, "\n"), "\n")+1:]
	if _, err := p.Verify(noteOf(t, by, 2) + line); !errors.Is(err, proof.ErrSignature) {
		t.Error(err)
	}
}

// TestFaultsTR4: an error names the line.
func TestFaultsTR4(t *testing.T) {
	key := func(seed byte) string { return cosignerOf(t, seed).Key().String() }
	logKey := logSigner(t, 1).PublicKey()
	origin, err := proof.CheckpointKey(logKey, [8]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	renamed, err := proof.NewCosigner("other.example", [32]byte{11})
	if err != nil {
		t.Fatal(err)
	}
	before := strings.Count(head(t), "\n")
	for text, line := range map[string]int{
		"":                               1,
		"quorum\n":                       1,
		"quorum a":                       1,
		"quorum e\n":                     1,
		"quorum a\nquorum b\n":           2,
		"quorum a\r\n":                   1,
		"colour blue\n":                  1,
		"log\n":                          1,
		"log x\n":                        1,
		"log " + key(20) + "\n":          1,
		"log " + logKey + "\n":           1,
		"log " + origin + "\n":           1,
		"witness e\n":                    1,
		"witness e " + logKey + "\n":     1,
		"witness a " + key(20) + "\n":    1,
		"witness none " + key(20) + "\n": 1,
		"witness e " + key(11) + "\n":    1,
		"witness e " + renamed.Key().String() + "\n":   1,
		"witness e " + key(20) + " u v\n":              1,
		"witness e " + key(20) + " ftp://w.example\n":  1,
		"witness e " + key(20) + " w.example/w\n":      1,
		"witness e " + key(20) + " https://\n":         1,
		"witness e " + key(20) + " https://u@w\n":      1,
		"witness e " + key(20) + " https://w/?x=y\n":   1,
		"witness e " + key(20) + " https://w/#x\n":     1,
		"witness \xff " + key(20) + "\n":               1,
		"group g all\n":                                1,
		"group g most a b\n":                           1,
		"group g 0 a b\n":                              1,
		"group g 3 a b\n":                              1,
		"group g 02 a b\n":                             1,
		"group g -1 a b\n":                             1,
		"group g all a a\n":                            1,
		"group g all a none\n":                         1,
		"group g all a g\n":                            1,
		"group g all h a\ngroup h all b g\nquorum g\n": 1,
		"group a all b\n":                              1,
		"group g all a\ngroup h all a b\n":             2,
	} {
		_, err := Parse([]byte(head(t) + text))
		var at *LineError
		if !errors.Is(err, ErrPolicy) || !errors.As(err, &at) || at.Line != before+line {
			t.Errorf("%q: %v, want line %d", text, err, before+line)
		}
	}
	_, err = Parse([]byte("colour\nshape\nquorum none\n"))
	if err == nil || !strings.Contains(err.Error(), "line 1: ") || !strings.Contains(err.Error(), "line 2: ") {
		t.Errorf("of two faults: %v", err)
	}
	if _, err := Parse(make([]byte, MaxText+1)); !errors.Is(err, ErrPolicy) {
		t.Errorf("too long: %v", err)
	}
}

// TestEndpointsTR4: the witnesses with a URL are those that a node asks.
func TestEndpointsTR4(t *testing.T) {
	key := func(seed byte) string { return cosignerOf(t, seed).Key().String() }
	text := "witness a " + key(11) + " https://a.example/w\nwitness b " + key(12) + "\nwitness c " + key(13) + " http://127.0.0.1:7\nquorum none\n"
	p, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range p.Endpoints() {
		got = append(got, e.Name+" "+e.Key.String()+" "+e.URL)
	}
	want := []string{"a " + key(11) + " https://a.example/w", "c " + key(13) + " http://127.0.0.1:7"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestBoundsTR4: a policy of what C2SP asks for at least is taken, and one without an end is not.
func TestBoundsTR4(t *testing.T) {
	build := func(n int) string {
		var b strings.Builder
		for i := range n {
			c, err := proof.NewCosigner("w", [32]byte{byte(i), byte(i >> 8), 1})
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "witness w%d %s\ngroup g%d any w%d\n", i, c.Key(), i, i)
		}
		return b.String() + "quorum g0\n"
	}
	if _, err := Parse([]byte(build(32))); err != nil {
		t.Error(err)
	}
	if _, err := Parse([]byte(build(maxLines + 1))); !errors.Is(err, ErrPolicy) {
		t.Error(err)
	}
}

// FuzzParseTR4: a text that is taken has a quorum that all its witnesses together fulfil.
func FuzzParseTR4(f *testing.F) {
	f.Add([]byte(head(f) + "group g 2 a b c\nquorum g\n"))
	f.Add([]byte("quorum none\n"))
	f.Add([]byte(head(f) + "group g all g\nquorum g\n"))
	f.Add([]byte("\xff #\n\tquorum none"))
	note := noteOf(f, logSigner(f, 1), 0, 11, 12, 13, 14)
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := Parse(text)
		if err != nil {
			if !errors.Is(err, ErrPolicy) {
				t.Fatal(err)
			}
			return
		}
		all := map[*proof.WitnessKey]time.Time{}
		for _, w := range p.witnesses {
			all[w.key] = time.Unix(1, 0)
		}
		if p.quorum != nil && (!p.quorum.witnessed(all) || p.quorum.witnessed(nil)) {
			t.Fatalf("the quorum of %q cannot be missed or reached", text)
		}
		_, _ = p.Verify(note)
	})
}
