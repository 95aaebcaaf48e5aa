package wal

import (
	"sync"

	hraft "github.com/hashicorp/raft"
)

// entryCache keeps the log's newest entries, bounded by bytes: a follower that keeps up, and apply,
// never read the disk (D3). Entries follow each other without a hole.
type entryCache struct {
	limit int

	mu    sync.Mutex
	logs  []*hraft.Log // oldest first
	bytes int
}

// entryOverhead is the approximate cost of an entry without its data.
const entryOverhead = 128

func entrySize(l *hraft.Log) int { return len(l.Data) + entryOverhead }

// add appends entries, which must not change afterwards.
func (c *entryCache) add(logs []*hraft.Log) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range logs {
		if n := len(c.logs); n > 0 && c.logs[n-1].Index+1 != l.Index {
			c.logs, c.bytes = nil, 0
		}
		c.logs = append(c.logs, l)
		c.bytes += entrySize(l)
	}
	drop := 0
	for c.bytes > c.limit && drop < len(c.logs) {
		c.bytes -= entrySize(c.logs[drop])
		c.logs[drop] = nil
		drop++
	}
	c.logs = c.logs[drop:]
}

// get copies the entry at index into l, if the cache has it.
func (c *entryCache) get(index uint64, l *hraft.Log) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.logs) == 0 || index < c.logs[0].Index || index > c.logs[len(c.logs)-1].Index {
		return false
	}
	*l = *c.logs[index-c.logs[0].Index]
	return true
}

// clear empties the cache: the log changes other than by an append.
func (c *entryCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.logs, c.bytes = nil, 0
}
