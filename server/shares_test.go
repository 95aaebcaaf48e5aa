package server

import (
	"fmt"
	"net"
	"testing"

	"runlog/server/rpc"
	"runlog/testbed/bubble"
)

// TestSharedFiles: whatever the limit of open files is, clients get some connections, and as soon
// as the limit allows it, the node's own files are never given to them.
func TestSharedFiles(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		for _, c := range []struct{ limit, database, connections int }{
			{64, 64, 16}, {256, 64, 64}, {512, 64, 128}, {1024, 64, 576}, {4096, 256, 2880}, {1 << 20, 1000, 1<<20 - 4192},
		} {
			database, connections := shareFiles(c.limit)
			if database != c.database || connections != c.connections {
				t.Errorf("%d: %d of a database, %d connections; want %+v", c.limit, database, connections, c)
			}
			if c.limit >= fewFiles && databases*database+otherFiles+connections > c.limit {
				t.Errorf("%d: given away twice", c.limit)
			}
		}
	})
}

// TestConnectionsFitIntoMemorySEC6: connections take an eighth of the memory at most, and no files
// that the databases need.
func TestConnectionsFitIntoMemorySEC6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			memory    int64
			openFiles int
			want      int
		}{
			{MinMemoryBytes, 0, 512}, {512 << 20, 1 << 20, 1024}, {DefaultMemoryBytes, 1024, 576}, {8 << 30, 1 << 20, 16384},
		} {
			if got := clientConnections(c.memory, c.openFiles); got != c.want {
				t.Errorf("%d bytes, %d files: %d connections, want %d", c.memory, c.openFiles, got, c.want)
			}
		}
	})
}

// TestWaitingCallsLeaveRoomQUE6: as many calls may wait as the leader allows, all over the
// connection of one member, and that member still forwards appends, and learns that the leader
// lives. A connection without a free stream makes each call wait.
func TestWaitingCallsLeaveRoomQUE6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		if room := rpc.MaxConcurrentStreams - maxWaitingLeases; room < 1000 {
			t.Errorf("%d calls may wait, and a connection has %d streams: %d are left", maxWaitingLeases, rpc.MaxConcurrentStreams, room)
		}
	})
}

// TestSharesOfHealth: an address, or a network of IPv6 that one machine may have, can use its share
// of the watches alone, and gets it back when its watches end.
func TestSharesOfHealth(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		h := newHealthChecks(nil)
		at := func(host string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(host), Port: 1} }
		var ends []func()
		take := func(host string) bool {
			end, ok := h.take(at(host))
			if ok {
				ends = append(ends, end)
			}
			return ok
		}
		for i := range healthWatchesOfOne {
			if !take(fmt.Sprintf("2001:db8::%x", i)) {
				t.Fatal("its share is refused")
			}
		}
		if take("2001:db8::ffff:1:2:3") || !take("2001:db8:0:1::1") || !take("192.0.2.1") || !take("::ffff:192.0.2.1") {
			t.Error("a network of IPv6 is not one address, or another address is refused")
		}
		for i := 0; len(ends) < healthWatches; i++ {
			if !take(fmt.Sprintf("192.0.3.%d", i)) {
				t.Fatalf("refused after %d watches", len(ends))
			}
		}
		if take("198.51.100.1") {
			t.Error("more than all watches")
		}
		for _, end := range ends {
			end()
		}
		if len(h.mu.open) != 0 || h.mu.all != 0 || !take("198.51.100.1") {
			t.Errorf("after the end: %v, %d", h.mu.open, h.mu.all)
		}
	})
}
