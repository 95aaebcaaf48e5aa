package peer

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// TestUnackedDataEndsConnections: at both ends of a connection between nodes, the kernel ends it
// when data is not acknowledged. A new connection is made as soon as the other node can be reached,
// and calls do not wait for TCP to send again (APP-10).
func TestUnackedDataEndsConnections(t *testing.T) {
	system := &bed{TB: t} // The kernel ends connections of its own network.
	n1, n2 := start(system, identity("n1"), nil, nil), start(system, identity("n2"), nil, nil)
	for _, kind := range []Kind{KindRaft, KindNode} {
		listener := n2.Listener(kind)
		dialled, err := n1.dialTo(t.Context(), kind, n2)
		if err != nil {
			t.Fatal(err)
		}
		defer dialled.Close()
		accepted, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer accepted.Close()
		for end, conn := range map[string]net.Conn{"dialled": dialled, "accepted": accepted} {
			raw, err := conn.(*Conn).Conn.(*net.TCPConn).SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			var has int
			if cause := raw.Control(func(fd uintptr) { has, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT) }); cause != nil || err != nil {
				t.Fatal(cause, err)
			}
			if want := int(unackedTimeout.Milliseconds()); has != want {
				t.Errorf("%v, %s: unacknowledged data ends it after %d ms, want %d", kind, end, has, want)
			}
		}
	}
}
