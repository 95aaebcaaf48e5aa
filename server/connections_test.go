package server

import (
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

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

// TestConnectionsOverTheLimit: a connection above the limit is closed at once and counted,
// whichever listener it came to; those below the limit work on, and one that ends makes room.
func TestConnectionsOverTheLimit(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		// 16 connections, of which the clients of the test have some.
		n := startNode(t, func(o *Options) { o.OpenFiles = 64 })
		a := n.server.Addresses()
		n.append("run", newEvent("RunStarted"))
		var idle []net.Conn
		open := func(address string) net.Conn {
			t.Helper()
			c, err := n.dialTo(n.context(), address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			return c
		}
		for i := range 16 {
			idle = append(idle, open([]string{a.GRPC, a.HTTP}[i%2]))
		}
		bubble.Until(t, "connections are refused", func() bool { return n.metric("runlog_connections_refused_total") > 0 })
		c := idle[15] // The last one.
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil || isTimeout(err) {
			t.Errorf("a connection above the limit is left open: %v", err)
		}
		n.append("run", newEvent("Noted", step("a"))) // On the connection that is open.
		for _, c := range idle {
			_ = c.Close()
		}
		bubble.Until(t, "there is room again", func() bool {
			resp, err := n.httpClient().Get("http://" + a.HTTP + "/readyz")
			if err != nil {
				return false
			}
			_ = resp.Body.Close()
			return resp.StatusCode == http.StatusOK
		})
	})
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}
