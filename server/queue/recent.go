package queue

import (
	"sync"

	"google.golang.org/protobuf/types/known/structpb"

	runlogv1 "runlog/proto/runlog/v1"
)

const (
	// recentBytes bounds what is remembered of requests.
	recentBytes = 8 << 20
	// requestedBytes is about what a request takes in memory in addition to what its answer has.
	requestedBytes = 1 << 10
)

// requested is a run as its request has made it, which never changes.
type requested struct {
	run     *runlogv1.Run
	context *structpb.Struct
}

// recent remembers the runs that were requested at this node, so that most leases are answered
// without a read. It has two generations: when the younger one is full, the older one is forgotten.
type recent struct {
	mu         sync.Mutex
	young, old map[string]*requested
	bytes      int64 // of young
}

func (c *recent) put(runID string, r *requested, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	bytes += requestedBytes
	if bytes > recentBytes/2 {
		return
	}
	if c.young == nil || c.bytes+bytes > recentBytes/2 {
		c.young, c.old, c.bytes = map[string]*requested{}, c.young, 0
	}
	c.young[runID] = r
	c.bytes += bytes
}

// get returns nil for a run that is not remembered.
func (c *recent) get(runID string) *requested {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.young[runID]; r != nil {
		return r
	}
	return c.old[runID]
}
