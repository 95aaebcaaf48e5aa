package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"
)

// TestCertificatesThatAreRefused shows that a stale certificate, one from the future, one of
// another authority and one of another node are refused at either end, and that both ends know why.
func TestCertificatesThatAreRefused(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	year := 365 * day
	for name, test := range map[string]struct {
		good, bad *TLS
		reason    Reason
		says      []string
	}{
		"stale": {
			good: ours.tlsAt(t, "good", clockAt(noon.Add(100*day)), year), bad: ours.tlsAt(t, "bad", clockAt(noon), 110*day),
			reason: Certificate, says: []string{"node bad is expired since 2030-08-30T12:00:00Z", "issue a new one"},
		},
		"not valid yet": {
			good: ours.tlsAt(t, "good", clockAt(noon.Add(-15*day)), year), bad: ours.issued(t, "bad", noon),
			reason: Certificate, says: []string{"node bad is not valid before", "clocks"},
		},
		"of another authority": {
			good: ours.tls(t, "good"), bad: theirs.tls(t, "bad"),
			reason: Certificate, says: []string{"another certificate authority"},
		},
		"of another node": {
			good: ours.tls(t, "good"), bad: ours.tls(t, "worse"),
			reason: IdentityMismatch, says: []string{"node bad shows the certificate of node worse"},
		},
		"without a node's name": {
			good: ours.tls(t, "good"), bad: ours.odd(t, func(c *x509.Certificate) { c.URIs = nil }),
			reason: Certificate, says: []string{"runlog://node/NODE"},
		},
		"for another purpose": {
			good: ours.tls(t, "good"), bad: ours.odd(t, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning} }),
			reason: Certificate, says: []string{"node bad cannot be used"},
		},
		"with two names": {
			good: ours.tls(t, "good"), bad: ours.odd(t, func(c *x509.Certificate) { c.URIs = append(c.URIs, nameURI("good")) }),
			reason: Certificate, says: []string{"runlog://node/NODE"},
		},
	} {
		runInBubble(t, "shown by the dialling end/"+name, func(t *bed) {
			dialler := start(t, identity("bad"), test.bad, nil)
			other := serving(t, identity("good"), test.good, nil)
			trustEach(test.bad, test.good)
			conn, err := dialler.dialTo(t.Context(), KindRaft, other)
			refusedWith(t, conn, err, test.reason, true, test.says...)
			other.logged(t, "a node was refused", "reason="+string(test.reason), test.says[0])
		})
		runInBubble(t, "shown by the accepting end/"+name, func(t *bed) {
			address, last := credulous(t, identity("bad"), test.bad)
			dialler := start(t, identity("good"), test.good, nil)
			conn, err := dialler.Dial(t.Context(), KindRaft, address, "")
			refusedWith(t, conn, err, test.reason, false, test.says...)
			dialler.logged(t, "a node was refused", "reason="+string(test.reason), test.says[0])
			if told := <-last; told.Type != refusal || told.Reason != test.reason || !strings.Contains(told.Text, test.says[0]) {
				t.Errorf("the other end was told %+v", told)
			}
		})
	}
}

// trustEach makes the first end take the second, so that what the second thinks of the first is
// seen.
func trustEach(bad, good *TLS) {
	leaf, err := x509.ParseCertificate(good.files.Last().own.Certificate[0])
	if err != nil {
		panic(err)
	}
	bad.files.Last().roots.AddCert(leaf)
}

// issued is a certificate that begins an hour before a time, which is on the node's clock too.
func (a authority) issued(t testing.TB, node string, at time.Time) *TLS {
	t.Helper()
	ca, cert, key := a.issue(t, node, at, 90*day)
	loaded, err := LoadTLS(ca, cert, key, clockAt(at).read)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// odd is a certificate of the node bad that LoadTLS would refuse.
func (a authority) odd(t testing.TB, change func(*x509.Certificate)) *TLS {
	t.Helper()
	loaded := a.tls(t, "bad")
	own := &loaded.files.Last().own
	ca, signer, err := readCA(a.dir)
	if err != nil {
		t.Fatal(err)
	}
	template := *own.Leaf
	template.SerialNumber = big.NewInt(7)
	change(&template)
	der, err := x509.CreateCertificate(nil, &template, ca, own.Leaf.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	own.Certificate = [][]byte{der}
	own.Leaf, err = x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// TestADiallerWithoutCertificateIsRefused shows that none is not taken for a good one.
func TestADiallerWithoutCertificateIsRefused(t *testing.T) {
	inBubble(t, func(t *bed) {
		n := serving(t, identity("n1"), newAuthority(t).tls(t, "n1"), nil)
		conn := tls.Client(t.dial(n.address()), &tls.Config{InsecureSkipVerify: true})
		defer conn.Close()
		told, err := readMessage(conn)
		if err != nil || told.Type != refusal || told.Reason != Certificate || !strings.Contains(told.Text, "no certificate") {
			t.Errorf("it was told %+v, %v", told, err)
		}
		n.logged(t, "a node was refused", "reason=CERTIFICATE", "no certificate")
	})
}

// TestOlderTLSIsRefused shows that TLS 1.2 is not spoken.
func TestOlderTLSIsRefused(t *testing.T) {
	inBubble(t, func(t *bed) {
		n := serving(t, identity("n1"), newAuthority(t).tls(t, "n1"), nil)
		conn := tls.Client(t.dial(n.address()), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12})
		defer conn.Close()
		if err := conn.Handshake(); err == nil {
			t.Error("TLS 1.2 was taken")
		}
		n.logged(t, "a node was refused", "reason=PROTOCOL", "TLS 1.3")
	})
}

// TestAnAlertOfTLSIsTakenForARefusal shows what a dialling end says when TLS itself refuses its
// certificate, which it hears only at its first read.
func TestAnAlertOfTLSIsTakenForARefusal(t *testing.T) {
	inBubble(t, func(t *bed) {
		ours, theirs := newAuthority(t), newAuthority(t)
		config := ours.tls(t, "n2").files.Last().config()
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, theirs.tls(t, "x").files.Last().roots
		l := tls.NewListener(t.listen(), config)
		go func() {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			_ = conn.(*tls.Conn).Handshake()
			linger(conn.(*tls.Conn).NetConn(), conn)
		}()
		n1 := start(t, identity("n1"), ours.tls(t, "n1"), nil)
		conn, err := n1.Dial(t.Context(), KindRaft, l.Addr().String(), "")
		refusedWith(t, conn, err, Certificate, true, "refused the certificate of this node", "unknown certificate authority")
	})
}

// TestLoadTLSRefusesWhatOthersWould shows that a node with files of no use does not start, and says
// why.
func TestLoadTLSRefusesWhatOthersWould(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	ca, cert, key := ours.issue(t, "n1", noon, 10*day)
	otherCA, _, otherKey := theirs.issue(t, "n1", noon, 10*day)
	empty := t.TempDir() + "/empty"
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		ca, cert, key string
		now           time.Time
		says          string
	}{
		"expired":                 {ca, cert, key, noon.Add(11 * day), "n1 is expired since 2030-06-11T12:00:00Z"},
		"not valid yet":           {ca, cert, key, noon.Add(-2 * time.Hour), "not valid before"},
		"of another authority":    {otherCA, cert, key, noon, "another certificate authority"},
		"with another key":        {ca, cert, otherKey, noon, "no certificate with its key"},
		"no authority":            {empty, cert, key, noon, "holds no certificate"},
		"authority that is none":  {cert, cert, key, noon, "of no certificate authority"},
		"certificate that is one": {ca, ca, strings.Replace(ca, ".crt", ".key", 1), noon, "runlog://node/NODE"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := LoadTLS(test.ca, test.cert, test.key, clockAt(test.now).read)
			e, ok := errors.AsType[*RefusedError](err)
			if !ok || e.Reason != Certificate || !strings.Contains(e.Message, test.says) {
				t.Errorf("%v does not say %q", err, test.says)
			}
		})
	}
	if _, err := LoadTLS(ca, cert+"x", key, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

// TestTheEndOfACertificateIsWarnedOf shows the warning of the last 14 days, and the metric.
func TestTheEndOfACertificateIsWarnedOf(t *testing.T) {
	inBubble(t, func(t *bed) {
		ca := newAuthority(t)
		for left, warned := range map[time.Duration]bool{13 * day: true, 15 * day: false} {
			loaded := ca.tlsAt(t, "n1", clockAt(noon), 20*day+left)
			n := start(t, identity("n1"), loaded, nil)
			if got := strings.Contains(n.log.String(), "expires soon"); got != warned {
				t.Errorf("%v before its end: warned %t", left, got)
			}
			if got, want := n.count(t, "runlog_peer_certificate_expiry_seconds"), float64(noon.Add(left).Unix()); got != want {
				t.Errorf("the metric is %v, want %v", got, want)
			}
		}
	})
}

// rotating is a node whose certificate files a test replaces, under a clock.
type rotating struct {
	*node
	ca, cert, key string
	clock         *clock
}

func newRotating(t *bed, a authority, name string) *rotating {
	r := &rotating{clock: clockAt(noon)}
	r.ca, r.cert, r.key = a.issue(t, name, noon.Add(-20*day), 110*day)
	loaded, err := LoadTLS(r.ca, r.cert, r.key, r.clock.read)
	if err != nil {
		t.Fatal(err)
	}
	r.node = serving(t, identity(name), loaded, nil)
	return r
}

// replace puts other files in the place of the node's.
func (r *rotating) replace(t testing.TB, ca, cert, key string) {
	t.Helper()
	copyFile(t, ca, r.ca)
	copyFile(t, cert, r.cert)
	copyFile(t, key, r.key)
	r.clock.forward(time.Second)
}

// shown dials the node and returns the end of the certificate that it shows.
func (r *rotating) shown(t testing.TB, from *node) time.Time {
	t.Helper()
	conn, err := from.dialTo(t.Context(), KindNode, r.node)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.(*Conn).Conn.(*tls.Conn).ConnectionState().PeerCertificates[0].NotAfter
}

// TestCertificatesAreReplacedWithoutARestart shows that new files are used from the next connection
// on, and that broken ones, and those of another node, change nothing but the log.
func TestCertificatesAreReplacedWithoutARestart(t *testing.T) {
	inBubble(t, func(t *bed) {
		ours, theirs := newAuthority(t), newAuthority(t)
		n2 := newRotating(t, ours, "n2")
		n1 := start(t, identity("n1"), ours.tls(t, "n1"), nil)
		before := n2.shown(t, n1)

		n2.replace(t, n2.ca, n2.ca, n2.key) // The certificate does not fit the key.
		if got := n2.shown(t, n1); !got.Equal(before) {
			t.Errorf("broken files: shown is one that ends at %v", got)
		}
		n2.logged(t, "level=ERROR", "cannot load changed certificate files", "no certificate with its key")

		ca, cert, key := ours.issue(t, "n3", noon, 50*day)
		n2.replace(t, ca, cert, key)
		if got := n2.shown(t, n1); !got.Equal(before) {
			t.Errorf("another node's: shown is one that ends at %v", got)
		}
		n2.logged(t, "level=ERROR", "that of node n3, and this is node n2")

		_, cert, key = theirs.issue(t, "n2", noon, 50*day)
		n2.replace(t, n2.ca, cert, key)
		if got := n2.shown(t, n1); !got.Equal(before) {
			t.Errorf("another authority's: shown is one that ends at %v", got)
		}

		ca, cert, key = ours.issue(t, "n2", noon, 70*day)
		n2.replace(t, ca, cert, key)
		if got := n2.shown(t, n1); !got.Equal(noon.Add(70 * day)) {
			t.Errorf("sound files: shown is one that ends at %v", got)
		}
		if got := n2.count(t, "runlog_peer_certificate_expiry_seconds"); got != float64(noon.Add(70*day).Unix()) {
			t.Errorf("the metric is %v", got)
		}
	})
}

// TestTheAuthorityIsReplacedWithoutARestart shows that a file with both authorities bridges from
// one to the other.
func TestTheAuthorityIsReplacedWithoutARestart(t *testing.T) {
	inBubble(t, func(t *bed) {
		first, second := newAuthority(t), newAuthority(t)
		n2 := newRotating(t, first, "n2")
		n1 := start(t, identity("n1"), second.tls(t, "n1"), nil)
		conn, err := n1.dialTo(t.Context(), KindNode, n2.node)
		refusedWith(t, conn, err, Certificate, false)

		ca, cert, key := second.issue(t, "n2", noon, 70*day)
		both := t.TempDir() + "/both.crt"
		copyFile(t, ca, both)
		appendFile(t, both, n2.ca)
		n2.replace(t, both, cert, key)
		n2.shown(t, n1)
		old := start(t, identity("n3"), first.tls(t, "n3"), nil)
		conn, err = old.dialTo(t.Context(), KindNode, n2.node)
		refusedWith(t, conn, err, Certificate, false) // It does not trust the second yet.
		n3 := newRotating(t, first, "n4")
		n3.replace(t, both, n3.cert, n3.key)
		n2.shown(t, n3.node) // It trusts both, and n2 trusts the first still.
	})
}

func appendFile(t testing.TB, to, from string) {
	t.Helper()
	a, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, append(a, b...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestADialEndsWithItsContext shows that neither a silent end nor one that does not take part in
// TLS holds a dial.
func TestADialEndsWithItsContext(t *testing.T) {
	inBubble(t, func(t *bed) {
		l := t.listen()
		for name, certificate := range map[string]*TLS{"plain": nil, "TLS": newAuthority(t).tls(t, "n1")} {
			n := start(t, identity("n1"), certificate, func(o *Options) { o.handshakeTimeout = 50 * time.Millisecond })
			_, err := n.Dial(t.Context(), KindRaft, l.Addr().String(), "")
			if !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), "not a runlog node") {
				t.Errorf("%s: %v", name, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := n.Dial(ctx, KindRaft, l.Addr().String(), ""); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
