package server_test

import (
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestConnectionsOverTheLimit: a connection above the limit is closed at once and counted,
// whichever listener it came to; those below the limit work on, and one that ends makes room.
func TestConnectionsOverTheLimit(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		// 16 connections, of which the clients of the test have some.
		n := servertest.Start(t, func(o *server.Options) { o.OpenFiles = 64 })
		a := n.Server.Addresses()
		n.Append("run", servertest.NewEvent("RunStarted"))
		var idle []net.Conn
		open := func(address string) net.Conn {
			t.Helper()
			c, err := n.DialTo(n.Context(), address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			return c
		}
		for i := range 16 {
			idle = append(idle, open([]string{a.GRPC, a.HTTP}[i%2]))
		}
		bubble.Until(t, "connections are refused", func() bool { return n.Metric("runlog_connections_refused_total") > 0 })
		c := idle[15] // The last one.
		if err := c.SetReadDeadline(time.Now().Add(servertest.Patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil || isTimeout(err) {
			t.Errorf("a connection above the limit is left open: %v", err)
		}
		// On the connection that is open.
		n.Append("run", servertest.NewEvent("Noted", servertest.Step("a")))
		for _, c := range idle {
			_ = c.Close()
		}
		bubble.Until(t, "there is room again", func() bool {
			resp, err := n.HTTPClient().Get("http://" + a.HTTP + "/readyz")
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
