package programtest

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"flag"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"runlog/client/transport/certfile"
	"runlog/engine/program"
	"runlog/testbed/bubble"
)

// Authority issues certificates.
type Authority struct {
	// PEM is its own certificate.
	PEM []byte

	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority returns an authority.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t}
	a.PEM, a.cert, a.key = a.sign("an authority", nil)
	return a
}

// sign returns a certificate with a name as PEM, and its key. Without a parent it is of an
// authority.
func (a *Authority) sign(name string, parent *Authority) ([]byte, *x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true, IsCA: parent == nil, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
	by, signer := c, key
	if parent != nil {
		by, signer = parent.cert, parent.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, by, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	if c, err = x509.ParseCertificate(der); err != nil {
		a.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), c, key
}

// Pair returns a certificate with its key, as PEM.
func (a *Authority) Pair(name string) []byte {
	a.t.Helper()
	cert, _, key := a.sign(name, a)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return append(cert, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})...)
}

// Server returns the configuration of a server with a name, which demands certificates of clients.
func (a *Authority) Server(name string) *tls.Config {
	a.t.Helper()
	text := a.Pair(name)
	own, err := tls.X509KeyPair(text, text)
	if err != nil {
		a.t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AddCert(a.cert)
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert,
		NextProtos: []string{"h2"}}
}

// Write writes a file that its owner alone may read.
func Write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Secure makes a connection to a server secure.
type Secure func(ctx context.Context, conn net.Conn, server string) (net.Conn, error)

// WantTLS checks the connections of a program to the server of its engine. They have the authority,
// the client certificate and the server's name of the flags whose names begin with prefix. One that
// is made after the files have changed has the new ones. Files that cannot be used leave the
// earlier ones, and are logged.
func WantTLS(t *testing.T, prefix string, secure func(*certfile.Files[tls.Config], *slog.Logger) Secure) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		const name, other = "engine.example", "other.example"
		dir := t.TempDir()
		var flags program.TLS
		flags.Register(flag.NewFlagSet("", flag.ContinueOnError), prefix, "the engine")
		flags.CACert, flags.Cert = filepath.Join(dir, "ca.pem"), filepath.Join(dir, "client.pem")
		first, second := NewAuthority(t), NewAuthority(t)
		Write(t, flags.CACert, string(first.PEM))
		Write(t, flags.Cert, string(first.Pair("worker")))
		files, err := flags.Files()
		if err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		connect := secure(files, slog.New(slog.NewTextHandler(&said, nil)))
		shakes := func(what string, server *tls.Config, want bool) {
			t.Helper()
			if err := shake(t.Context(), server, func(conn net.Conn) (net.Conn, error) { return connect(t.Context(), conn, name) }); (err == nil) != want {
				t.Errorf("%s: %v, want success %v", what, err, want)
			}
		}
		server, next := first.Server(name), second.Server(name)
		shakes("the first authority", server, true)
		shakes("another name", first.Server(other), false)
		shakes("another authority", next, false)
		Write(t, flags.CACert, string(second.PEM))
		Write(t, flags.Cert, string(second.Pair("worker")))
		time.Sleep(time.Second)
		shakes("the next authority", next, true)
		shakes("the earlier authority", server, false)
		Write(t, flags.Cert, "half")
		time.Sleep(time.Second)
		shakes("after a file that cannot be used", next, true)
		if want := "the TLS files of --" + prefix + "; keeping the old ones"; !strings.Contains(said.String(), want) {
			t.Errorf("the log says %q, want %s", said.String(), want)
		}
	})
}

// shake makes a connection with a server, and returns what is wrong with either side.
func shake(ctx context.Context, server *tls.Config, secure func(net.Conn) (net.Conn, error)) error {
	near, far := net.Pipe()
	answered := make(chan error, 1)
	go func() {
		conn := tls.Server(far, server)
		err := conn.HandshakeContext(ctx)
		if err == nil {
			_, err = conn.Write([]byte("x"))
		}
		answered <- errors.Join(err, far.Close())
	}()
	conn, err := secure(near)
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	_ = near.Close()
	return errors.Join(err, <-answered)
}
