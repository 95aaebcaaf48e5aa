package overlay_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"runlog/storage/internal/overlay"
)

// model is what an overlay holds: nil is a deleted row.
type model map[string][]byte

// TestOverlay compares an overlay with a map through writes, marks and rollbacks.
func TestOverlay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o overlay.Overlay
		type moment struct {
			mark    overlay.Mark
			model   model
			effects []byte
		}
		m := model{}
		moments := []moment{{o.Mark(), model{}, nil}}
		key := rapid.Custom(func(t *rapid.T) []byte {
			return fmt.Appendf(nil, "T%d", rapid.IntRange(0, 20).Draw(t, "key"))
		})
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			k := key.Draw(t, "row")
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				o.Delete(k)
				m[string(k)] = nil
			case 1:
				moments = append(moments, moment{o.Mark(), maps.Clone(m), bytes.Clone(o.Effects())})
			case 2:
				i := rapid.IntRange(0, len(moments)-1).Draw(t, "moment")
				o.Rollback(moments[i].mark)
				m = maps.Clone(moments[i].model)
				if !bytes.Equal(o.Effects(), moments[i].effects) {
					t.Fatalf("effects %x, were %x", o.Effects(), moments[i].effects)
				}
				moments = moments[:i+1]
			default:
				v := rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(t, "value")
				o.Set(k, v)
				m[string(k)] = append([]byte{}, v...)
				// The owner changes key and value after the call.
				for i := range v {
					v[i] ^= 0xff
				}
				k[0] = 'x'
			}
			compare(t, &o, m)
			from, to := key.Draw(t, "from"), key.Draw(t, "to")
			var want []string
			for _, k := range slices.Sorted(maps.Keys(m)) {
				if k >= string(from) && k < string(to) {
					want = append(want, k)
				}
			}
			var got []string
			for _, r := range o.Range(from, to) {
				got = append(got, string(r.Key))
			}
			if !slices.Equal(got, want) {
				t.Fatalf("range %q to %q is %q, want %q", from, to, got, want)
			}
		}
		if got := o.Range(nil, nil); len(got) != o.Len() {
			t.Fatalf("%d rows in all, %d without bounds", o.Len(), len(got))
		}
		o.Reset()
		compare(t, &o, model{})
		if len(o.Effects()) > 0 {
			t.Fatal("effects after Reset")
		}
	})
}

func compare(t *rapid.T, o *overlay.Overlay, m model) {
	t.Helper()
	var want []overlay.Row
	for _, k := range slices.Sorted(maps.Keys(m)) {
		want = append(want, overlay.Row{Key: []byte(k), Value: m[k], Deleted: m[k] == nil})
	}
	same := func(a, b overlay.Row) bool {
		return bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value) && a.Deleted == b.Deleted && (a.Value == nil) == a.Deleted
	}
	if got := o.All(); !slices.EqualFunc(got, want, same) || o.Len() != len(want) {
		t.Fatalf("rows %v, want %v", got, want)
	}
	for _, w := range want {
		if got, ok := o.Get(w.Key); !ok || !same(got, w) {
			t.Fatalf("row %q is %v, %t", w.Key, got, ok)
		}
	}
	if _, ok := o.Get([]byte("U")); ok {
		t.Fatal("a row that nobody wrote")
	}
}
