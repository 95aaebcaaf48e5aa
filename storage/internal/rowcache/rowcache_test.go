package rowcache_test

import (
	"bytes"
	"fmt"
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"runlog/storage/internal/rowcache"
)

// TestCacheD12 compares a cache with a map: what it says of a row is what was put last, and it
// takes no more than its limit.
func TestCacheD12(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.SampledFrom([]int{0, 1, 300, 1000, 100_000}).Draw(t, "limit")
		c, told := rowcache.New(limit), map[string][]byte{}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			key := fmt.Appendf(nil, "key-%d", rapid.IntRange(0, 9).Draw(t, "key"))
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				c.Forget(key)
				delete(told, string(key))
			case 1, 2:
				var value []byte
				if size := rapid.SampledFrom([]int{-1, 0, 1, 50, 120, 700}).Draw(t, "size"); size >= 0 {
					value = bytes.Repeat([]byte{byte(rapid.IntRange(0, 255).Draw(t, "value"))}, size)
				}
				told[string(key)] = value
				c.Put(key, value)
				key[0] = 'x' // It is the caller's.
				continue
			}
			value, known := c.Get(key)
			want, ever := told[string(key)]
			if known && (!ever || !bytes.Equal(value, want) || (value == nil) != (want == nil)) {
				t.Fatalf("%s is %q, was told %q, %t", key, value, want, ever)
			}
			if limit == 100_000 && known != ever {
				t.Fatalf("%s: known %t, was told %t", key, known, ever)
			}
			if c.Bytes() > limit {
				t.Fatalf("%d bytes, at most %d may be", c.Bytes(), limit)
			}
		}
		for key := range maps.Keys(told) {
			c.Forget([]byte(key))
		}
		if c.Bytes() != 0 {
			t.Fatalf("%d bytes are left of nothing", c.Bytes())
		}
	})
}

// TestUsedRowsStay: a row that is asked for stays, however many others come and go; one that is not
// goes.
func TestUsedRowsStay(t *testing.T) {
	t.Parallel()
	c := rowcache.New(10_000)
	c.Put([]byte("used"), []byte("1"))
	c.Put([]byte("idle"), []byte("1"))
	for n := range 1000 {
		c.Put(fmt.Append(nil, n), []byte(strings.Repeat("x", 100)))
		if value, known := c.Get([]byte("used")); !known || string(value) != "1" {
			t.Fatalf("after %d other rows it is %q, %t", n, value, known)
		}
	}
	if _, known := c.Get([]byte("idle")); known {
		t.Error("a row that nobody asked for is kept")
	}
	c.Put([]byte("large"), make([]byte, 10_000))
	if _, known := c.Get([]byte("used")); !known {
		t.Error("a row that is too large to keep has driven out the others")
	}
}
