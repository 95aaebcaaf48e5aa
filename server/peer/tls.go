package peer

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"runlog/client/transport/certfile"
)

// TLS is a node's own certificate and the authorities of its cluster, read again when their files
// change.
type TLS struct {
	paths [3]string // authorities, certificate, key
	clock func() time.Time
	files *certfile.Files[material]
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
// nodes would refuse: a *RefusedError with reason Certificate. A nil clock is that of the system.
func LoadTLS(caFile, certFile, keyFile string, clock func() time.Time) (*TLS, error) {
	if clock == nil {
		clock = time.Now
	}
	t := &TLS{paths: [3]string{caFile, certFile, keyFile}, clock: clock}
	files, err := certfile.Load(certfile.Options[material]{Paths: t.paths[:], Read: t.read, Clock: clock})
	if err != nil {
		return nil, certificateError(err)
	}
	t.files = files
	return t, nil
}

// certificateError tells that a file cannot be read; a refusal tells by itself what is wrong.
func certificateError(err error) error {
	if _, ok := errors.AsType[*os.PathError](err); ok {
		return fmt.Errorf("peer: certificate files: %w", err)
	}
	return err
}

// NodeID returns the name of the node in the certificate.
func (t *TLS) NodeID() string { return t.files.Last().node }

// expiry returns when the node's certificate ends, and how long that is from now.
func (t *TLS) expiry() (time.Time, time.Duration) {
	end := t.files.Last().own.Leaf.NotAfter
	return end, end.Sub(t.clock())
}

// current returns the current material (certfile.Files).
func (t *TLS) current() (*material, error) {
	m, err := t.files.Current()
	return m, certificateError(err)
}

// read reads the files and refuses mismatched or unusable ones.
func (t *TLS) read(before *material) (*material, error) {
	roots, err := readAuthorities(t.paths[0])
	if err != nil {
		return nil, err
	}
	own, err := tls.LoadX509KeyPair(t.paths[1], t.paths[2])
	if err != nil {
		if _, ok := errors.AsType[*os.PathError](err); ok {
			return nil, err
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
	if before != nil && m.node != before.node {
		return nil, refuse(Certificate, "the certificate in %s is now that of node %s, and this is node %s", t.paths[1], m.node, before.node)
	}
	return m, nil
}

func readAuthorities(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	roots, err := certfile.Authorities(text)
	if err != nil {
		return nil, refuse(Certificate, "%s %v", path, err)
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
