package table_test

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage/table"
)

// rows are the rows of tables, by their keys.
type rows map[string][]byte

var (
	_ table.Reader = rows{}
	_ table.Writer = rows{}
)

func (r rows) Set(key, value []byte) { r[string(key)] = bytes.Clone(value) }

func (r rows) Get(key []byte) ([]byte, error) { return r[string(key)], nil }

func (r rows) Scan(from, to []byte) iter.Seq2[table.Row, error] {
	return func(yield func(table.Row, error) bool) {
		for _, key := range slices.Sorted(maps.Keys(r)) {
			if key < string(from) || to != nil && key >= string(to) {
				continue
			}
			if !yield(table.Row{Key: []byte(key), Value: r[key]}, nil) {
				return
			}
		}
	}
}

func (r rows) ScanDown(from, to []byte) iter.Seq2[table.Row, error] { panic("not used") }

// TestKeyOrder proves that keys are in the order of their fields: of a text, then of a number.
func TestKeyOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[\x01-\x03]{0,3}`)
		number := rapid.OneOf(rapid.Uint64Range(0, 3), rapid.Uint64())
		a, b := text.Draw(t, "a"), text.Draw(t, "b")
		m, n := number.Draw(t, "m"), number.Draw(t, "n")
		want := strings.Compare(a, b)
		if want == 0 {
			want = bytes.Compare(fmt.Appendf(nil, "%020d", m), fmt.Appendf(nil, "%020d", n))
		}
		if got := bytes.Compare(table.In("U").Text(a).Number(m), table.In("U").Text(b).Number(n)); got != want {
			t.Fatalf("%q %d and %q %d are in order %d, want %d", a, m, b, n, got, want)
		}
	})
}

// TestAfter proves that the keys that begin with one lie below what comes after it, and no other
// key does that lies above the first of them.
func TestAfter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0xfe, 0xff}), 0, 4)
		prefix, key := table.Key(some.Draw(t, "prefix")), some.Draw(t, "key")
		after := prefix.After()
		got := bytes.Compare(key, prefix) >= 0 && (after == nil || bytes.Compare(key, after) < 0)
		if want := bytes.HasPrefix(key, prefix); got != want {
			t.Fatalf("key %x lies between %x and %x: %t, want %t", key, prefix, after, got, want)
		}
	})
}

// TestRows writes and reads rows of both kinds, some of which are not there or not what they should
// be.
func TestRows(t *testing.T) {
	t.Parallel()
	r := rows{}
	if m, err := table.Get[recordv1.JoinToken](r, []byte("J1")); m != nil || err != nil {
		t.Errorf("a message that is not there: %v, %v", m, err)
	}
	if n, err := table.GetNumber(r, []byte("X1")); n != 0 || err != nil {
		t.Errorf("a number that is not there: %d, %v", n, err)
	}
	want := &recordv1.JoinToken{TokenId: "1", Uses: 7}
	if err := table.Set(r, []byte("J1"), want); err != nil {
		t.Fatal(err)
	}
	table.SetNumber(r, []byte("X1"), 1<<60)
	if m, err := table.Get[recordv1.JoinToken](r, []byte("J1")); !proto.Equal(m, want) || err != nil {
		t.Errorf("message %v, %v; want %v", m, err, want)
	}
	if n, err := table.GetNumber(r, []byte("X1")); n != 1<<60 || err != nil {
		t.Errorf("number %d, %v", n, err)
	}
	if err := table.Set(r, []byte("J3"), &recordv1.JoinToken{TokenId: "\xff"}); err == nil || r["J3"] != nil {
		t.Errorf("a message that cannot be encoded: %v, row %q", err, r["J3"])
	}

	r["J2"], r["X2"] = []byte{0xff}, []byte("seven b")
	if m, err := table.Get[recordv1.JoinToken](r, []byte("J2")); m != nil || !errors.Is(err, table.ErrRow) {
		t.Errorf("a row that is no message: %v, %v", m, err)
	}
	if _, err := table.GetNumber(r, []byte("X2")); !errors.Is(err, table.ErrRow) {
		t.Errorf("a row that is no number: %v", err)
	}
	var ids []string
	for m, err := range table.Each[recordv1.JoinToken](r.Scan([]byte("J"), []byte("K"))) {
		ids = append(ids, fmt.Sprintf("%s %t", m.GetTokenId(), errors.Is(err, table.ErrRow)))
	}
	if want := []string{"1 false", " true"}; !slices.Equal(ids, want) {
		t.Errorf("each row: %q, want %q", ids, want)
	}
}

// TestPage compares pages of rows with the whole list, from any place on.
func TestPage(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r, key := rows{}, rapid.StringMatching(`N[ab]{0,3}`)
		for _, k := range rapid.SliceOfN(key, 0, 20).Draw(t, "keys") {
			r[k] = []byte{1}
		}
		prefix, behind := key.Draw(t, "prefix"), rapid.OneOf(rapid.Just(""), key).Draw(t, "behind")
		var all []string
		for _, k := range slices.Sorted(maps.Keys(r)) {
			// A key before the prefix leaves nothing out, not even the prefix itself.
			if strings.HasPrefix(k, prefix) && (behind < prefix || k > behind) {
				all = append(all, k)
			}
		}
		n := rapid.IntRange(0, 5).Draw(t, "n")
		list, more, err := table.Page(r, table.Key(prefix), table.Key(behind), n, func(row table.Row) (string, error) {
			return string(row.Key), nil
		})
		if err != nil || !slices.Equal(list, all[:min(n, len(all))]) || more != (len(all) > n) {
			t.Fatalf("page %q, more %t, %v; want the first %d of %q", list, more, err, n, all)
		}
	})
}
