package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"flag"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"runlog/testbed/bubble"
)

// authority issues certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.pem, a.cert, a.key = a.sign("an authority", nil)
	return a
}

// sign returns a certificate with a name as PEM, and its key. Without a parent it is of an
// authority.
func (a *authority) sign(name string, parent *authority) ([]byte, *x509.Certificate, *ecdsa.PrivateKey) {
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

// pair returns a certificate with its key, as PEM.
func (a *authority) pair(name string) []byte {
	a.t.Helper()
	cert, _, key := a.sign(name, a)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return append(cert, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})...)
}

// server returns the configuration of a server with a name, which demands certificates of clients.
func (a *authority) server(name string) *tls.Config {
	a.t.Helper()
	text := a.pair(name)
	own, err := tls.X509KeyPair(text, text)
	if err != nil {
		a.t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AddCert(a.cert)
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert}
}

func store(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestConductorTLSSEC1: the connection to Conductor has the authority, the client certificate and
// the server name of the flags. One that is made after the files have changed has the new ones.
func TestConductorTLSSEC1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var c conductorFlags
		c.register(flag.NewFlagSet("", flag.ContinueOnError))
		c.tls.CACert, c.tls.Cert = filepath.Join(dir, "ca.pem"), filepath.Join(dir, "client.pem")
		first, second := newAuthority(t), newAuthority(t)
		store(t, c.tls.CACert, first.pem)
		store(t, c.tls.Cert, first.pair("worker"))
		files, err := c.tls.Files()
		if err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		s := &secured{files, slog.New(slog.NewTextHandler(&said, nil))}
		shakes := func(what string, server *tls.Config, want bool) {
			t.Helper()
			near, far := net.Pipe()
			answered := make(chan error, 1)
			go func() {
				conn := tls.Server(far, server)
				err := conn.HandshakeContext(t.Context())
				if err == nil {
					_, err = conn.Write([]byte("x"))
				}
				answered <- errors.Join(err, far.Close())
			}()
			conn, err := s.secure(t.Context(), near, "conductor.example")
			if err == nil {
				_, err = conn.Read(make([]byte, 1))
			}
			_ = near.Close()
			if err := errors.Join(err, <-answered); (err == nil) != want {
				t.Errorf("%s: %v, want success %v", what, err, want)
			}
		}
		server, next := first.server("conductor.example"), second.server("conductor.example")
		shakes("the first authority", server, true)
		shakes("another name", first.server("other.example"), false)
		shakes("another authority", next, false)
		store(t, c.tls.CACert, second.pem)
		store(t, c.tls.Cert, second.pair("worker"))
		time.Sleep(time.Second)
		shakes("the next authority", next, true)
		shakes("the earlier authority", server, false)
		store(t, c.tls.Cert, []byte("half"))
		time.Sleep(time.Second)
		shakes("after a file that cannot be used", next, true)
		if !bytes.Contains(said.Bytes(), []byte("TLS files of --conductor")) {
			t.Errorf("the log says %q", said.String())
		}
	})
}

// TestConductorTokenSEC1: calls of Conductor have the value that is in the file of the flag now, on
// a connection that the flags secure.
func TestConductorTokenSEC1(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	of := newAuthority(t)
	got := make(chan string, 1)
	server := &http.Server{ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got <- r.Header.Get("X-Authorization")
			_, _ = io.WriteString(w, `{"healthy":true}`)
		})}
	ended := make(chan struct{})
	go func() { _ = server.Serve(tls.NewListener(l, of.server("conductor.example"))); close(ended) }()
	t.Cleanup(func() { _ = server.Close(); <-ended })
	dir := t.TempDir()
	file, ca, own := filepath.Join(dir, "key"), filepath.Join(dir, "ca.pem"), filepath.Join(dir, "client.pem")
	store(t, file, []byte("first\n"))
	store(t, ca, of.pem)
	store(t, own, of.pair("worker"))
	a, err := parsed("capabilities --conductor https://" + l.Addr().String() + " --conductor-token-file " + file + " --conductor-cacert " + ca +
		" --conductor-cert " + own + " --conductor-server-name conductor.example")
	if err != nil {
		t.Fatal(err)
	}
	c, err := a.conductor.dial(a.logger)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Health(t.Context()); err != nil {
		t.Fatal(err)
	}
	if key := <-got; key != "first" {
		t.Errorf("Conductor got %q", key)
	}
}

// TestTokenChangesSEC1: the value of a file that changes is that of the next call. A file that
// cannot be used leaves the earlier value.
func TestTokenChangesSEC1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "key")
		store(t, file, []byte("first"))
		c := conductorFlags{url: "http://127.0.0.1:8080", tokenFile: file}
		value, err := c.credential(slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct{ text, want string }{{"", "first"}, {"two\nlines", "first"}, {"second", "second"}} {
			store(t, file, []byte(tt.text))
			time.Sleep(time.Second)
			if got := value(); got != tt.want {
				t.Errorf("%q: got %q, want %q", tt.text, got, tt.want)
			}
		}
	})
}
