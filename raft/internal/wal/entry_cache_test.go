package wal

import (
	"testing"

	hraft "github.com/hashicorp/raft"
	"pgregory.net/rapid"
)

// TestEntryCache proves D3 and D12: the cache gives an entry as it was last written or not at all,
// has the newest ones, and never more bytes than it may.
func TestEntryCache(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := entryCache{limit: rapid.IntRange(0, 3000).Draw(t, "limit")}
		written := map[uint64]byte{}
		next := uint64(rapid.IntRange(1, 5).Draw(t, "first"))
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0: // another leader overrules the end of the log
				next -= min(next-1, uint64(rapid.IntRange(1, 5).Draw(t, "cut")))
				c.clear()
			case 1: // a snapshot was installed
				next += uint64(rapid.IntRange(1, 5).Draw(t, "skip"))
			default:
				var group []*hraft.Log
				for range rapid.IntRange(1, 4).Draw(t, "group") {
					mark := rapid.Byte().Draw(t, "mark")
					group = append(group, &hraft.Log{Index: next, Data: make([]byte, rapid.IntRange(1, 400).Draw(t, "size"))})
					group[len(group)-1].Data[0], written[next] = mark, mark
					next++
				}
				c.add(group)
				last := group[len(group)-1]
				if c.get(last.Index, &hraft.Log{}) != (entrySize(last) <= c.limit) {
					t.Fatalf("entry %d of %d bytes, limit %d", last.Index, entrySize(last), c.limit)
				}
			}
			if c.bytes > c.limit {
				t.Fatalf("%d bytes, limit %d", c.bytes, c.limit)
			}
			for index := range next + 2 {
				var l hraft.Log
				if c.get(index, &l) && (l.Index != index || l.Data[0] != written[index]) {
					t.Fatalf("entry %d is %+v, written was %d", index, l, written[index])
				}
			}
		}
	})
}
