package network_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/nettest"

	"runlog/testbed/bubble"
	"runlog/testbed/network"
)

// pair connects two hosts.
func pair(t testing.TB, n *network.Network) (a, b net.Conn) {
	t.Helper()
	l, err := n.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	a, err = n.Dial(t.Context(), "127.0.0.2", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a, b
}

// TestConn holds connections to what package net asks of them.
func TestConn(t *testing.T) {
	nettest.TestConn(t, func() (a, b net.Conn, stop func(), err error) {
		a, b = pair(t, network.New(1))
		return a, b, func() { _, _ = a.Close(), b.Close() }, nil
	})
}

// TestAddresses: port 0 is a free one, both ends have addresses of their own, and a port that is
// taken is refused.
func TestAddresses(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := network.New(1)
		a, b := pair(t, n)
		if a.RemoteAddr().String() != b.LocalAddr().String() || a.LocalAddr().String() != b.RemoteAddr().String() {
			t.Errorf("%v to %v is %v to %v at the other end", a.LocalAddr(), a.RemoteAddr(), b.RemoteAddr(), b.LocalAddr())
		}
		if from, ok := b.RemoteAddr().(*net.TCPAddr); !ok || from.IP.String() != "127.0.0.2" || from.Port == 0 {
			t.Errorf("the other end is %v", b.RemoteAddr())
		}
		if _, err := n.Listen("tcp", b.LocalAddr().String()); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("a port that is taken: %v", err)
		}
		if _, err := n.Dial(t.Context(), "a", "127.0.0.9:1"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a port without a listener: %v", err)
		}
		if one, other := n.Host(), n.Host(); one == other {
			t.Errorf("%s is named twice", one)
		}
	})
}

// TestFaults: what is cut waits, what is refused or reset fails, and what is slow is late.
func TestFaults(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := network.New(1)
		a, b := pair(t, n)
		there := network.Link{From: "127.0.0.2", To: "127.0.0.1"}
		arrives := func(text string) time.Duration {
			began := time.Now()
			if _, err := io.WriteString(a, text); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(b, make([]byte, len(text))); err != nil {
				t.Fatal(err)
			}
			return time.Since(began)
		}
		if took := arrives("at once"); took > time.Millisecond {
			t.Errorf("without a fault, a piece takes %v", took)
		}
		n.Delay(there, time.Minute)
		if took := arrives("slow"); took < time.Minute || took > time.Minute+time.Millisecond {
			t.Errorf("on a slow link, a piece takes %v", took)
		}
		n.Delay(there, -time.Minute)
		n.Block(there)
		time.AfterFunc(time.Hour, func() { n.Open(there) })
		if took := arrives("cut"); took < time.Hour {
			t.Errorf("over a link that was cut for an hour, a piece takes %v", took)
		}

		n.Block(there)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.Dial(ctx, "127.0.0.2", b.LocalAddr().String()); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a dial over a link that is cut: %v", err)
		}
		n.Open(there)
		if ends := n.ResetBetween("127.0.0.1", "127.0.0.2", false); ends != 2 {
			t.Errorf("%d ends are reset", ends)
		}
		synctest.Wait()
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("after a reset: %v", err)
		}
		n.Refuse("127.0.0.1", "127.0.0.2")
		if _, err := n.Dial(t.Context(), "127.0.0.2", b.LocalAddr().String()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a link that refuses: %v", err)
		}
		n.Admit("127.0.0.1", "127.0.0.2")
		if c, err := n.Dial(t.Context(), "127.0.0.2", b.LocalAddr().String()); err != nil {
			t.Errorf("a link that admits again: %v", err)
		} else {
			_ = c.Close()
		}
		n.Drop("127.0.0.1")
		if _, err := n.Dial(t.Context(), "127.0.0.2", b.LocalAddr().String()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a host without power: %v", err)
		}
	})
}
