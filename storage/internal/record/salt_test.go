package record

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"runlog/proto/contract"
	recordv1 "runlog/proto/record/v1"
)

// storedOf returns the records of a command, with the digests that its headers have.
func storedOf(t rapid.TB, c Command) (records []Record, headers []Header) {
	t.Helper()
	m := &recordv1.Command{}
	if err := proto.Unmarshal(CommandBytes(c), m); err != nil {
		t.Fatal(err)
	}
	a := m.Append
	run := &recordv1.RunIdentity{RunId: a.RunId, Scope: a.Scope, Plan: a.Plan}
	for _, b := range a.Blocks {
		block := Block{Count: uint64(b.Count), FirstSeq: 1, Codec: byte(b.Codec), RawSize: uint64(b.RawSize), Data: b.Data}
		some, err := block.Records(run, 1, 1, Whole)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, some...)
	}
	for rest := a.Headers; len(rest) > 0; rest = rest[HeaderSize:] {
		headers = append(headers, ParseHeader(rest))
	}
	return records, headers
}

// TestSaltsLIFE5: every encoding gives every event another salt, so that one payload has unrelated
// digests; the header has the digest that readers work out of what is stored.
func TestSaltsLIFE5(t *testing.T) {
	salts, digests := map[contract.Salt]bool{}, map[contract.Digest]bool{}
	encoded := 0
	rapid.Check(t, func(t *rapid.T) {
		e := contract.Event{Type: "Custom", RunID: "run", LogicalAttemptID: 1, IdempotencyKey: "key", Payload: []byte(`{"guess":"yes"}`)}
		a := &Append{RunID: "run", Keyed: true}
		for range rapid.IntRange(1, 200).Draw(t, "events") {
			a.Events = append(a.Events, e)
		}
		for range 2 { // the second one is another try of the same events
			c, err := EncodeAppend(a)
			if err != nil {
				t.Fatal(err)
			}
			records, headers := storedOf(t, c)
			for i := range records {
				r := &records[i]
				salts[r.PayloadSalt], digests[r.PayloadDigest] = true, true
				if encoded++; r.RecordDigest != headers[i].Record {
					t.Fatalf("event %d: the header has the record digest %s, readers get %s", i, headers[i].Record, r.RecordDigest)
				}
			}
		}
	})
	if len(salts) != encoded || len(digests) != encoded || salts[contract.Salt{}] {
		t.Errorf("%d salts and %d payload digests of %d events", len(salts), len(digests), encoded)
	}
}

// TestRandomLIFE5: no byte is given twice, across all reads from the system.
func TestRandomLIFE5(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r random
		var all []byte
		for range rapid.IntRange(1, 300).Draw(t, "reads") {
			b := make([]byte, rapid.IntRange(8, 32).Draw(t, "size"))
			r.read(b)
			all = append(all, b...)
		}
		seen := map[string]bool{}
		for i := 0; i+8 <= len(all); i++ {
			if seen[string(all[i:i+8])] {
				t.Fatalf("8 bytes are there twice, of %d", len(all))
			}
			seen[string(all[i:i+8])] = true
		}
	})
}

// TestBadSaltsLIFE5: a stored event with no salt, or one of another length, is damage, and a
// request needs a salt for each event or none.
func TestBadSaltsLIFE5(t *testing.T) {
	for _, n := range []int{0, 1, 15, 17, 32} {
		m := &recordv1.Body{EventId: make([]byte, 16), Payload: []byte("{}"), PayloadSalt: make([]byte, n)}
		body, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		for _, detail := range []Detail{Whole, Facts} {
			raw := append([]byte{byte(len(body))}, body...)
			b := Block{Count: 1, FirstSeq: 1, RawSize: uint64(len(raw)), Data: raw}
			_, err = b.Records(&recordv1.RunIdentity{}, 1, 1, detail)
			if !errors.Is(err, ErrBody) || !strings.Contains(err.Error(), fmt.Sprintf("salt of %d bytes", n)) {
				t.Errorf("a salt of %d bytes: %v", n, err)
			}
		}
	}
	a := &Append{RunID: "run", Events: make([]contract.Event, 2), Salts: make([]contract.Salt, 1)}
	if _, err := EncodeAppend(a); err == nil || !strings.Contains(err.Error(), "1 salts of 2 events") {
		t.Errorf("a salt for one of two events: %v", err)
	}
}

// TestReceiptKeyLIFE5: the cluster's key counts where there is one, else that of the command, and
// it is in nothing that is printed.
func TestReceiptKeyLIFE5(t *testing.T) {
	own, brought := ReceiptKey{1}, ReceiptKey{2}
	for name, c := range map[string]struct {
		cluster ReceiptKey
		brought []byte
		want    ReceiptKey
		fails   bool
	}{
		"own":             {own, nil, own, false},
		"both":            {own, brought[:], own, false},
		"brought":         {ReceiptKey{}, brought[:], brought, false},
		"own, bad length": {own, brought[:3], own, false},
		"none":            {ReceiptKey{}, nil, ReceiptKey{}, true},
		"zero":            {ReceiptKey{}, make([]byte, 16), ReceiptKey{}, true},
		"bad length":      {ReceiptKey{}, brought[:15], ReceiptKey{}, true},
		"too long":        {ReceiptKey{}, make([]byte, 17), ReceiptKey{}, true},
	} {
		m := AppendCommand{ReceiptKey: c.brought}
		if got, err := m.KeyFor(c.cluster); got != c.want || c.fails != errors.Is(err, ErrCommand) {
			t.Errorf("%s: %x, %v", name, got[:], err)
		}
	}
	a := Applied{ReceiptKey: ReceiptKey{0xab, 0xcd}}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%q"} {
		if text := fmt.Sprintf(verb, a); bytes.Contains([]byte(text), []byte("abcd")) || strings.Contains(text, "171") || strings.Contains(text, "0xab") {
			t.Errorf("%s prints the key: %s", verb, text)
		}
	}
}

// TestKeyerLIFE5: what is keyed depends on the key, on the digest and on what it is of.
func TestKeyerLIFE5(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string, n int) []byte { return rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, name) }
		one, two := ReceiptKey(draw("key", 16)), ReceiptKey(draw("other key", 16))
		x, y := [8]byte(draw("digest", 8)), [8]byte(draw("other digest", 8))
		if one == (ReceiptKey{}) || two == (ReceiptKey{}) || one == two || x == y {
			t.Skip("equal")
		}
		var k, l Keyer
		k.Use(one)
		l.Use(two)
		got := k.key(x, ofContent)
		if got != k.key(x, ofContent) || got == x || got == k.key(y, ofContent) || got == k.key(x, ofImported) || got == l.key(x, ofContent) {
			t.Fatalf("%x becomes %x", x, got)
		}
		l.Use(one)
		if got != l.key(x, ofContent) {
			t.Fatal("a keyer remembers the key before")
		}
	})
}
