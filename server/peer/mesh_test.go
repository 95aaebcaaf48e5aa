package peer

import (
	"net"
	"testing"
)

// TestBothKindsCarryBytesBothWays shows that connections of both kinds go to the listener of their
// kind, that each end knows the other, and that no byte is lost, with TLS and without.
func TestBothKindsCarryBytesBothWays(t *testing.T) {
	ca := newAuthority(t)
	for name, tls := range map[string][2]*TLS{
		"plain": {},
		"TLS":   {ca.tls(t, "n1"), ca.tls(t, "n2")},
	} {
		runInBubble(t, name, func(t *bed) {
			n1, n2 := start(t, identity("n1"), tls[0], nil), start(t, identity("n2"), tls[1], nil)
			for kind, l := range map[Kind]net.Listener{KindRaft: n2.Listener(KindRaft), KindNode: n2.Listener(KindNode)} {
				dialled, err := n1.Dial(t.Context(), kind, n2.address(), "n2.7")
				if err != nil {
					t.Fatal(err)
				}
				defer dialled.Close()
				accepted, err := l.Accept()
				if err != nil {
					t.Fatal(err)
				}
				defer accepted.Close()
				talk(t, dialled, accepted)
				if d, a := dialled.(*Conn), accepted.(*Conn); d.Identity() != n2.self || a.Identity() != n1.self || d.Kind() != kind || a.Kind() != kind {
					t.Errorf("the ends are %+v and %+v", d, a)
				}
			}
		})
	}
}
