package peer

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"strings"
	"testing"
	"time"

	"runlog/storage"
)

// credulous is an accepting end that takes everybody and says what the test gives it. It returns
// where it listens, and what came last.
func credulous(t *bed, self Identity, certificate *TLS) (address string, last <-chan message) {
	t.Helper()
	l := t.listen()
	out := make(chan message, 1)
	go func() {
		defer close(out)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		if certificate != nil {
			conn = tls.Server(conn, certificate.files.Last().config())
		}
		in, err := readMessage(conn)
		if err == nil && in.Type == hello {
			b, _ := message{Type: welcome, Kind: in.Kind, Identity: self}.encode()
			_, _ = conn.Write(b)
			in, err = readMessage(conn)
		}
		if err == nil {
			out <- in
		}
	}()
	return l.Addr().String(), out
}

// TestEitherEndRefuses shows each refusal of the handshake, made by the accepting end and by the
// dialling end: the end that refuses logs it, and both know the reason and a text.
func TestEitherEndRefuses(t *testing.T) {
	with := func(i Identity, change func(*Identity)) Identity { change(&i); return i }
	n1, n2 := identity("n1"), identity("n2")
	for name, test := range map[string]struct {
		dialling, accepting Identity
		want                string
		admit               func(Kind, Identity) error
		reason              Reason
		says                []string
	}{
		"another cluster": {
			dialling: n1, accepting: with(n2, func(i *Identity) { i.Cluster = clusterB }),
			reason: ForeignCluster, says: []string{"n1", "n2", "aa00", "bb00", "new --data-dir"},
		},
		"another format": {
			dialling: n1, accepting: with(n2, func(i *Identity) { i.Format = 4 }),
			reason: FormatVersion, says: []string{"v-n1", "v-n2", "format 3", "format 4", "same format"},
		},
		"another node at the address": {
			dialling: n1, accepting: n2, want: "n3.7",
			reason: IdentityMismatch, says: []string{"n3.7 was wanted", "n2.7 answers"},
		},
		"other data at the address": {
			dialling: n1, accepting: n2, want: "n2.6",
			reason: IdentityMismatch, says: []string{"n2.6 was wanted", "made anew"},
		},
		"no member": {
			dialling: n1, accepting: n2, admit: func(Kind, Identity) error { return errors.New("not in the list; join first") },
			reason: NotAMember, says: []string{"not in the list; join first"},
		},
		"name taken": {
			dialling: n1, accepting: n2, admit: func(Kind, Identity) error { return &RefusedError{Reason: NodeIDTaken, Message: "choose another"} },
			reason: NodeIDTaken, says: []string{"choose another"},
		},
	} {
		runInBubble(t, "by the accepting end/"+name, func(t *bed) {
			dialler := start(t, test.dialling, nil, nil)
			other := serving(t, test.accepting, nil, func(o *Options) { o.Admit = test.admit })
			conn, err := dialler.Dial(t.Context(), KindRaft, other.address(), test.want)
			refusedWith(t, conn, err, test.reason, true, test.says...)
			other.logged(t, "a node was refused", "reason="+string(test.reason), "node=n1", test.says[0])
		})
		runInBubble(t, "by the dialling end/"+name, func(t *bed) {
			dialler := start(t, test.dialling, nil, func(o *Options) { o.Admit = test.admit })
			address, last := credulous(t, test.accepting, nil)
			conn, err := dialler.Dial(t.Context(), KindRaft, address, test.want)
			refusedWith(t, conn, err, test.reason, false, test.says...)
			dialler.logged(t, "a node was refused", "reason="+string(test.reason), "node=n2")
			if told := <-last; told.Type != refusal || told.Reason != test.reason || !strings.Contains(told.Text, test.says[0]) {
				t.Errorf("the other end was told %+v", told)
			}
		})
	}
}

// TestAdmitHearsWhoAndWhat shows that both ends' Admit get the other's identity and the kind.
func TestAdmitHearsWhoAndWhat(t *testing.T) {
	inBubble(t, func(t *bed) {
		type call struct {
			kind Kind
			who  Identity
		}
		calls := make(chan call, 2)
		admit := func(o *Options) {
			o.Admit = func(k Kind, i Identity) error { calls <- call{k, i}; return nil }
		}
		n1, n2 := start(t, identity("n1"), nil, admit), serving(t, identity("n2"), nil, admit)
		conn, err := n1.dialTo(t.Context(), KindNode, n2)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		if first, second := <-calls, <-calls; first != (call{KindNode, n1.self}) || second != (call{KindNode, n2.self}) {
			t.Errorf("Admit heard %+v and %+v", first, second)
		}
	})
}

// TestARefusalOfTheDiallingEndIsLoggedAtTheOther shows that a node learns that others refuse it.
func TestARefusalOfTheDiallingEndIsLoggedAtTheOther(t *testing.T) {
	inBubble(t, func(t *bed) {
		n1 := start(t, identity("n1"), nil, func(o *Options) { o.Admit = func(Kind, Identity) error { return errors.New("unknown node") } })
		n2 := serving(t, identity("n2"), nil, nil)
		conn, err := n1.dialTo(t.Context(), KindNode, n2)
		refusedWith(t, conn, err, NotAMember, false)
		n2.logged(t, "a node refused this one", "reason=NOT_A_MEMBER", "unknown node")
	})
}

// TestANodeWithoutClusterIsTaken shows that one that belongs to no cluster yet may talk to any, and
// that the identity is asked for at each connection.
func TestANodeWithoutClusterIsTaken(t *testing.T) {
	inBubble(t, func(t *bed) {
		cluster := make(chan storage.ClusterID, 2)
		n1 := start(t, identity("n1"), nil, func(o *Options) {
			o.Self = func() Identity {
				i := identity("n1")
				i.Cluster = <-cluster
				return i
			}
		})
		n2 := serving(t, identity("n2"), nil, nil)
		cluster <- storage.ClusterID{}
		conn, err := n1.dialTo(t.Context(), KindNode, n2)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		cluster <- clusterB
		conn, err = n1.dialTo(t.Context(), KindNode, n2)
		refusedWith(t, conn, err, ForeignCluster, true)
	})
}

// TestAKindThatNobodyTakesIsRefused shows that a node does not let others wait for what it does not
// serve yet, or any more.
func TestAKindThatNobodyTakesIsRefused(t *testing.T) {
	inBubble(t, func(t *bed) {
		n1, n2 := start(t, identity("n1"), nil, nil), start(t, identity("n2"), nil, nil)
		conn, err := n1.dialTo(t.Context(), KindRaft, n2)
		refusedWith(t, conn, err, NotServing, true, "retry")
		l := n2.Listener(KindRaft)
		if conn, err = n1.dialTo(t.Context(), KindRaft, n2); err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		_ = l.Close()
		conn, err = n1.dialTo(t.Context(), KindRaft, n2)
		refusedWith(t, conn, err, NotServing, true)
		_ = n2.Listener(KindRaft).Close() // There may be another now.
	})
}

// TestARaftNameOfAnotherNodeIsRefused shows that a node cannot claim another's place in Raft under
// its own name.
func TestARaftNameOfAnotherNodeIsRefused(t *testing.T) {
	inBubble(t, func(t *bed) {
		n := serving(t, identity("n2"), nil, nil)
		b, err := message{Type: hello, Kind: KindRaft, Identity: identity("n1")}.encode()
		if err != nil {
			t.Fatal(err)
		}
		b = bytes.Replace(b, []byte("n1.7"), []byte("n3.7"), 1)
		binary.BigEndian.PutUint32(b[len(b)-4:], crc32.Checksum(b[:len(b)-4], castagnoli))
		if told := answerTo(t, n, b); told.Type != refusal || told.Reason != Protocol || !strings.Contains(told.Text, "n3.7") {
			t.Errorf("it was told %+v", told)
		}
	})
}

// answerTo sends bytes to a node and returns what it answers.
func answerTo(t *bed, n *node, b []byte) message {
	t.Helper()
	conn := t.dial(n.address())
	_, _ = conn.Write(b)
	m, err := readMessage(conn)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	if rest, err := io.ReadAll(conn); err != nil || len(rest) > 0 {
		t.Errorf("after the answer came %q, %v", rest, err)
	}
	return m
}

// TestAnotherHandshakeVersionIsRefused shows that the versions of both ends are said, whatever else
// changed.
func TestAnotherHandshakeVersionIsRefused(t *testing.T) {
	inBubble(t, func(t *bed) {
		n := serving(t, identity("n2"), nil, nil)
		b := append([]byte(magic), 9, 'h', 'r', 0, 3, 1, 2, 3)
		b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
		if told := answerTo(t, n, b); told.Reason != FormatVersion || !strings.Contains(told.Text, "version 9") {
			t.Errorf("it was told %+v", told)
		}
		n.logged(t, "reason=FORMAT_VERSION")
	})
}

// TestRefusalsAreLoggedOnceAMinute shows that a node that tries again and again does not fill the
// log, and that another is logged still.
func TestRefusalsAreLoggedOnceAMinute(t *testing.T) {
	inBubble(t, func(t *bed) {
		foreign := identity("n1")
		foreign.Cluster = clusterB
		n1, n2 := start(t, foreign, nil, nil), serving(t, identity("n2"), nil, nil)
		for range 5 {
			conn, err := n1.dialTo(t.Context(), KindRaft, n2)
			refusedWith(t, conn, err, ForeignCluster, true)
		}
		foreign.NodeID, foreign.RaftID = "n3", "n3.7"
		n3 := start(t, foreign, nil, nil)
		_, _ = n3.dialTo(t.Context(), KindRaft, n2)
		if lines := strings.Count(n2.log.String(), "a node was refused"); lines != 2 {
			t.Errorf("%d lines:\n%s", lines, n2.log.String())
		}
		n2.clock.forward(61 * time.Second)
		_, _ = n1.dialTo(t.Context(), KindRaft, n2)
		n2.logged(t, "a node was refused", "node=n1", "alsoSince=4")
	})
}

// TestWhatIsRememberedOfLogsIsBounded shows that made-up names fill neither memory nor log.
func TestWhatIsRememberedOfLogsIsBounded(t *testing.T) {
	inBubble(t, func(t *bed) {
		n := start(t, identity("n1"), nil, nil)
		for i := range 3 * maxRemembered {
			n.logRefusal(refuse(Protocol, "x"), "192.0.2.1:1", string(rune('a'+i)))
		}
		if lines := strings.Count(n.log.String(), "\n"); lines > maxRemembered+1 || len(n.Mesh.log.mu.lines) > maxRemembered+1 {
			t.Errorf("%d lines, %d remembered", lines, len(n.Mesh.log.mu.lines))
		}
	})
}

// TestRefusalsAreCounted shows the metric, and that its labels cannot be made up from outside.
func TestRefusalsAreCounted(t *testing.T) {
	inBubble(t, func(t *bed) {
		n1 := start(t, identity("n1"), nil, nil)
		n2 := serving(t, identity("n2"), nil, func(o *Options) {
			o.Admit = func(Kind, Identity) error { return &RefusedError{Reason: "MADE_UP", Message: "x"} }
		})
		conn, err := n1.dialTo(t.Context(), KindRaft, n2)
		refusedWith(t, conn, err, "MADE_UP", true)
		if got := n1.count(t, "runlog_peer_handshakes_total", "dial", "OTHER"); got != 1 {
			t.Errorf("counted %v times", got)
		}
	})
}
