package peer

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// checkEvery is the shortest interval between checks of the certificate files.
const checkEvery = time.Second

// TLS is a node's own certificate and the authorities of its cluster, read again when their files
// change.
type TLS struct {
	paths [3]string // authorities, certificate, key
	clock func() time.Time

	mu struct {
		sync.Mutex
		material *material
		files    [3]os.FileInfo // as they were when material was read
		checked  time.Time
		err      error // of the last check; nil: material matches the files
	}
}

// material is the content of the files at one time. It never changes.
type material struct {
	own   tls.Certificate
	node  string // the node name in the own certificate
	roots *x509.CertPool
	clock func() time.Time
}

// LoadTLS reads, as PEM, the certificates of the cluster's authorities (several during a
// replacement), the node's certificate with intermediate ones, and its key. It refuses what other
// nodes would refuse: a *RefusedError with reason Certificate. A nil clock is the system's.
func LoadTLS(caFile, certFile, keyFile string, clock func() time.Time) (*TLS, error) {
	if clock == nil {
		clock = time.Now
	}
	t := &TLS{paths: [3]string{caFile, certFile, keyFile}, clock: clock}
	files, err := t.stat()
	if err != nil {
		return nil, err
	}
	m, err := t.read()
	if err != nil {
		return nil, err
	}
	t.mu.material, t.mu.files, t.mu.checked = m, files, clock()
	return t, nil
}

// NodeID returns the name of the node in the certificate.
func (t *TLS) NodeID() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.material.node
}

// expiry returns when the node's certificate ends, and how long that is from now.
func (t *TLS) expiry() (time.Time, time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	end := t.mu.material.own.Leaf.NotAfter
	return end, end.Sub(t.clock())
}

// current returns the current material, and checks the files if the last check was a second ago. An
// error means that the changed files are not usable; current then returns the earlier material too,
// and tries again later.
func (t *TLS) current() (*material, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock()
	if d := now.Sub(t.mu.checked); 0 <= d && d < checkEvery {
		return t.mu.material, t.mu.err
	}
	t.mu.checked = now
	// The check precedes the read: a change in between shows at the next check.
	files, err := t.stat()
	if err == nil && t.mu.err == nil && same(files, t.mu.files) {
		return t.mu.material, nil
	}
	var m *material
	if err == nil {
		m, err = t.read()
	}
	if err == nil && m.node != t.mu.material.node {
		err = refuse(Certificate, "the certificate in %s is now that of node %s, and this is node %s", t.paths[1], m.node, t.mu.material.node)
	}
	t.mu.err = err
	if err == nil {
		t.mu.material, t.mu.files = m, files
	}
	return t.mu.material, err
}

func (t *TLS) stat() (files [3]os.FileInfo, err error) {
	for i, path := range t.paths {
		if files[i], err = os.Stat(path); err != nil {
			return files, fmt.Errorf("peer: certificate files: %w", err)
		}
	}
	return files, nil
}

func same(a, b [3]os.FileInfo) bool {
	for i := range a {
		if !os.SameFile(a[i], b[i]) || a[i].Size() != b[i].Size() || !a[i].ModTime().Equal(b[i].ModTime()) {
			return false
		}
	}
	return true
}

// read reads the files and refuses mismatched or unusable ones.
func (t *TLS) read() (*material, error) {
	roots, err := readAuthorities(t.paths[0])
	if err != nil {
		return nil, err
	}
	own, err := tls.LoadX509KeyPair(t.paths[1], t.paths[2])
	if err != nil {
		if _, ok := errors.AsType[*os.PathError](err); ok {
			return nil, fmt.Errorf("peer: certificate files: %w", err)
		}
		return nil, refuse(Certificate, "%s and %s are no certificate with its key: %v", t.paths[1], t.paths[2], err)
	}
	chain := make([]*x509.Certificate, len(own.Certificate))
	for i, der := range own.Certificate {
		if chain[i], err = x509.ParseCertificate(der); err != nil {
			return nil, refuse(Certificate, "%s holds a certificate that cannot be read: %v", t.paths[1], err)
		}
	}
	m := &material{own: own, roots: roots, clock: t.clock}
	// A node's certificate is shown at both ends, so it must do at both.
	for _, role := range []role{clientRole, serverRole} {
		name, refused := m.nameIn(chain, role)
		if refused != nil {
			refused.Message = fmt.Sprintf("%s: %s", t.paths[1], refused.Message)
			return nil, refused
		}
		m.node = name
	}
	return m, nil
}

func readAuthorities(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("peer: certificate files: %w", err)
	}
	roots, count := x509.NewCertPool(), 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, refuse(Certificate, "%s holds a certificate that cannot be read: %v", path, err)
		}
		if !c.IsCA {
			return nil, refuse(Certificate, "%s holds the certificate %q, which is that of no certificate authority", path, clip(c.Subject.String(), maxField))
		}
		roots.AddCert(c)
		count++
	}
	if count == 0 {
		return nil, refuse(Certificate, "%s holds no certificate", path)
	}
	return roots, nil
}

// config is the same at both ends. It accepts any certificate whose key the other end has: nameOf
// checks it right after the handshake, before any message.
func (m *material) config() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{m.own},
		GetClientCertificate:   func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &m.own, nil },
		ClientAuth:             tls.RequestClientCert,
		InsecureSkipVerify:     true,
		SessionTicketsDisabled: true, // a resumed session would not show its certificate again
		Time:                   m.clock,
	}
}
