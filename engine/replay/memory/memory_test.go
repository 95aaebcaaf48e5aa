package memory

import (
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// TestMemoryIsBounded: the memory has what was put last, and what was used last of the others, as
// far as there is room.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type entry struct {
			key   string
			value int
			size  int64
		}
		m := New(nil, nil, 10)
		var model []entry // the one that was used last is the first
		take := func(key string) (e entry, ok bool) {
			for i := range model {
				if model[i].key == key {
					e = model[i]
					model = append(model[:i:i], model[i+1:]...)
					return e, true
				}
			}
			return e, false
		}
		for i := range rapid.IntRange(1, 50).Draw(t, "calls") {
			key := strconv.Itoa(rapid.IntRange(0, 5).Draw(t, "key"))
			if rapid.Bool().Draw(t, "get") {
				got, _ := m.get(key).(int)
				want, ok := take(key)
				if got != want.value {
					t.Fatalf("%s is %d, want %d", key, got, want.value)
				}
				if ok {
					model = append([]entry{want}, model...)
				}
				continue
			}
			e := entry{key, i + 1, rapid.Int64Range(0, 12).Draw(t, "size")}
			m.put(key, e.value, e.size)
			if take(key); e.size > m.most {
				continue
			}
			model = append([]entry{e}, model...)
			for sum := int64(0); ; sum = 0 {
				for _, x := range model {
					sum += x.size
				}
				if sum <= m.most {
					break
				}
				model = model[:len(model)-1]
			}
			if m.used > m.most {
				t.Fatalf("%d bytes are used, at most %d", m.used, m.most)
			}
		}
		if len(m.entries) != len(model) || m.order.Len() != len(model) {
			t.Fatalf("%d entries, want %d", len(m.entries), len(model))
		}
	})
}
