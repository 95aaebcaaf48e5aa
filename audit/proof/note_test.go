package proof

import (
	"errors"
	"strings"
	"testing"

	"runlog/proto/contract"
)

var testCluster = [16]byte{1, 2, 3}

func signer(t *testing.T, seed byte) *Signer {
	t.Helper()
	s, err := NewSigner(testCluster, [32]byte{seed})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestNotes: a note is believed under its own key, as it was signed, and under nothing else.
func TestNotes(t *testing.T) {
	one, other := signer(t, 1), signer(t, 2)
	e := Export{
		Cluster: testCluster, From: 1, To: 2_000_000_000, TenantID: "a \"tenant\"\n", Types: []string{"A", "B"},
		Count: 3, Digest: contract.Digest{9}, CompleteThrough: 3_000_000_000, Position: 7,
	}
	text, err := one.Sign(e.Statement())
	if err != nil {
		t.Fatal(err)
	}
	st, key, err := Open(text, other.PublicKey(), one.PublicKey())
	if err != nil || key != one.PublicKey() {
		t.Fatalf("key %q, %v", key, err)
	}
	got, err := ParseExport(st)
	if err != nil {
		t.Fatal(err)
	}
	if got.Statement().String() != e.Statement().String() || got.TenantID != e.TenantID || !got.Closed() {
		t.Errorf("%+v, want %+v", got, e)
	}
	if _, _, err := Open(text, other.PublicKey()); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("another key: %v", err)
	}
	for _, key := range []string{"", "x", "a+b+c", one.PublicKey()[:48], one.PublicKey() + "="} {
		if _, _, err := Open(text, key); !errors.Is(err, ErrKey) || errors.Is(err, ErrUnknownKey) {
			t.Errorf("key %q: %v", key, err)
		}
		if _, err := KeyID(key); !errors.Is(err, ErrKey) {
			t.Errorf("key %q: %v", key, err)
		}
	}
	if _, _, err := Open(Unsigned(e.Statement()), one.PublicKey()); !errors.Is(err, ErrUnsigned) {
		t.Errorf("not signed: %v", err)
	}
	for i := range text {
		changed := []byte(text)
		changed[i] ^= 1
		if _, _, err := Open(string(changed), one.PublicKey()); err == nil {
			t.Fatalf("byte %d changed: taken", i)
		}
		if _, _, err := Open(text[:i], one.PublicKey()); err == nil {
			t.Fatalf("cut at %d: taken", i)
		}
	}
	if _, who, err := Peek(text); err != nil || len(who) != 1 || !strings.HasPrefix(one.PublicKey(), who[0]) {
		t.Errorf("signed by %v, %v", who, err)
	}
}

// TestStatementsAreStrict: another title, order, or line is another statement.
func TestStatementsAreStrict(t *testing.T) {
	whole := (&Export{To: 1}).Statement().String()
	lines := strings.SplitAfter(strings.TrimSuffix(whole, "\n"), "\n")
	parse := func(text string) error {
		st, err := ParseStatement(text)
		if err == nil {
			_, err = ParseExport(st)
		}
		return err
	}
	if err := parse(whole); err != nil {
		t.Fatal(err)
	}
	for i := range lines {
		without := strings.Join(append(append([]string(nil), lines[:i]...), lines[i+1:]...), "")
		twice := strings.Join(append(append([]string(nil), lines[:i+1]...), lines[i:]...), "")
		more := strings.Join(append(append(append([]string(nil), lines[:i]...), "colour blue\n"), lines[i:]...), "")
		for _, text := range []string{without, twice, more + "\n", whole[:len(whole)-1]} {
			if err := parse(text); !errors.Is(err, ErrStatement) {
				t.Errorf("line %d: %v of\n%s", i, err, text)
			}
		}
	}
	for _, bad := range []string{"count 01", "count -1", "from 1970-01-01T00:00:00.0Z", "from 1970-01-01T01:00:00+01:00", "digest zz", "tenant x"} {
		name, _, _ := strings.Cut(bad, " ")
		text := whole
		for _, l := range lines {
			if strings.HasPrefix(l, name+" ") {
				text = strings.Replace(whole, l, bad+"\n", 1)
			}
		}
		if name == "tenant" {
			text = strings.Replace(whole, "count", "tenant x\ncount", 1)
		}
		if err := parse(text); !errors.Is(err, ErrStatement) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
