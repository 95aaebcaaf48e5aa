package main

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
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	sdkclient "go.temporal.io/sdk/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	runlogv1 "runlog/proto/runlog/v1"

	"runlog/engine/program"
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

// TestTemporalTLSSEC1: the connection to Temporal has the authority, the client certificate and the
// server name of the flags. A connection that is made after the files have changed has the new
// ones; files that cannot be used leave the earlier ones.
func TestTemporalTLSSEC1(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := program.TLS{CACert: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "client.pem"), Name: "temporal.example"}
		first, second := newAuthority(t), newAuthority(t)
		store(t, s.CACert, first.pem)
		store(t, s.Cert, first.pair("worker"))
		var said bytes.Buffer
		files, err := s.Files()
		if err != nil {
			t.Fatal(err)
		}
		secure := &reloading{files, slog.New(slog.NewTextHandler(&said, nil))}
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
			conn, _, err := secure.ClientHandshake(t.Context(), s.Name, near)
			if err == nil {
				_, err = conn.Read(make([]byte, 1))
			}
			_ = near.Close()
			if err := errors.Join(err, <-answered); (err == nil) != want {
				t.Errorf("%s: %v, want success %v", what, err, want)
			}
		}
		server, next := first.server("temporal.example"), second.server("temporal.example")
		server.NextProtos, next.NextProtos = []string{"h2"}, []string{"h2"}
		other := first.server("other.example")
		other.NextProtos = []string{"h2"}
		shakes("the first authority", server, true)
		shakes("another name", other, false)
		shakes("another authority", next, false)
		store(t, s.CACert, second.pem)
		store(t, s.Cert, second.pair("worker"))
		time.Sleep(time.Second)
		shakes("the next authority", next, true)
		shakes("the earlier authority", server, false)
		store(t, s.Cert, []byte("half"))
		time.Sleep(time.Second)
		shakes("after a file that cannot be used", next, true)
		if !strings.Contains(said.String(), "keeping the old ones") {
			t.Errorf("the log says %q", said.String())
		}
	})
}

// frontend notes the credentials of calls.
type frontend struct {
	workflowservice.UnimplementedWorkflowServiceServer
	keys chan string
}

// CountWorkflowExecutions answers the ping of an engine.
func (f frontend) CountWorkflowExecutions(ctx context.Context, _ *workflowservice.CountWorkflowExecutionsRequest) (*workflowservice.CountWorkflowExecutionsResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	f.keys <- strings.Join(md.Get("authorization"), " ")
	return &workflowservice.CountWorkflowExecutionsResponse{}, nil
}

// TestTemporalAPIKeySEC1: calls of Temporal have the API key that is in the file now, on a
// connection that the flags secure. The key leaves this machine over TLS alone.
func TestTemporalAPIKeySEC1(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := newAuthority(t)
	f, server := frontend{keys: make(chan string, 1)}, grpc.NewServer(grpc.Creds(credentials.NewTLS(a.server("temporal.example"))))
	workflowservice.RegisterWorkflowServiceServer(server, f)
	ended := make(chan struct{})
	go func() { _ = server.Serve(l); close(ended) }()
	t.Cleanup(func() { server.Stop(); <-ended })
	dir := t.TempDir()
	file, ca, own := filepath.Join(dir, "key"), filepath.Join(dir, "ca.pem"), filepath.Join(dir, "client.pem")
	store(t, file, []byte("first\n"))
	store(t, ca, a.pem)
	store(t, own, a.pair("worker"))
	e, err := configured(t, "sweep --temporal "+l.Addr().String()+" --temporal-api-key-file "+file+" --temporal-cacert "+ca+" --temporal-cert "+own+
		" --temporal-server-name temporal.example")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"first", "second"} {
		store(t, file, []byte(key+"\n"))
		if err := e.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := <-f.keys; got != "Bearer "+key {
			t.Errorf("got %q, want the key %s", got, key)
		}
	}
	for server, secure := range map[string]bool{"127.0.0.1:7233": false, "acme.tmprl.example:7233": true} {
		var o sdkclient.Options
		o.HostPort = server
		if err := (&security{apiKey: file}).apply(&o, slog.Default()); err != nil || (o.ConnectionOptions.TLS != nil) != secure {
			t.Errorf("%s: TLS %v, %v", server, o.ConnectionOptions.TLS != nil, err)
		}
	}
}

// access is the service that names its callers.
type access struct {
	runlogv1.UnimplementedAccessServiceServer
}

// WhoAmI answers with the name in the client certificate.
func (access) WhoAmI(ctx context.Context, _ *runlogv1.WhoAmIRequest) (*runlogv1.WhoAmIResponse, error) {
	p, _ := peer.FromContext(ctx)
	return &runlogv1.WhoAmIResponse{Name: p.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0].Subject.CommonName}, nil
}

// TestNodeTLSSEC1: the connection to runlog has the authority and the client certificate of the
// flags. Without them there is none.
func TestNodeTLSSEC1(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	of := newAuthority(t)
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(of.server("localhost"))))
	runlogv1.RegisterAccessServiceServer(server, access{})
	ended := make(chan struct{})
	go func() { _ = server.Serve(l); close(ended) }()
	t.Cleanup(func() { server.Stop(); <-ended })
	dir := t.TempDir()
	ca, own := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "client.pem")
	store(t, ca, of.pem)
	store(t, own, of.pair("worker"))
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for flags, want := range map[string]string{"--cacert " + ca + " --cert " + own: "worker", "--cacert " + ca: "", "--cert " + own: "", "": ""} {
		a, _, err := parse(new(bytes.Buffer), new(bytes.Buffer), strings.Fields("sweep --server localhost:"+port+" "+flags))
		if err != nil {
			t.Fatal(err)
		}
		if err := a.dial(); err != nil {
			t.Fatal(err)
		}
		who, err := a.log.WhoAmI(t.Context())
		a.close()
		if who.GetName() != want || (err == nil) != (want != "") {
			t.Errorf("%q: %v, %v, want %q", flags, who, err, want)
		}
	}
}

// TestTemporalSecurityFaults: each fault of the flags of the connection to Temporal names its flag.
func TestTemporalSecurityFaults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	empty, open, leaf := filepath.Join(dir, "empty"), filepath.Join(dir, "open"), filepath.Join(dir, "leaf")
	store(t, empty, nil)
	store(t, leaf, newAuthority(t).pair("worker"))
	store(t, open, []byte("key"))
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"--cert-key " + leaf:                       "--cert-key needs cert",
		"--cacert " + dir + "/none":                "--cacert: open",
		"--cert " + empty:                          "--cert " + empty,
		"--server https://a,b":                     "--server: ",
		"--temporal-cert-key " + leaf:              "--temporal-cert-key needs --temporal-cert",
		"--temporal-cacert " + dir + "/none":       dir + "/none",
		"--temporal-cacert " + empty:               "--temporal-cacert " + empty + " holds no certificate",
		"--temporal-cacert " + leaf:                "of no certificate authority",
		"--temporal-cert " + empty:                 "--temporal-cert " + empty,
		"--temporal-api-key-file " + empty:         "--temporal-api-key-file " + empty + ": it is empty",
		"--temporal-api-key-file " + open:          "other users can read it",
		"--temporal-api-key-file " + dir + "/none": "--temporal-api-key-file: open",
	} {
		_, err := configured(t, "sweep "+line)
		wantError(t, line, err, want)
	}
}
