package server_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/auth"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// authority issues certificates for tests.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  crypto.Signer
}

func newAuthority(t testing.TB) *authority {
	a := &authority{t: t}
	a.cert, a.key = a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "CA of " + t.Name()}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign})
	return a
}

// sign signs a certificate with the authority's key, or with its own if there is no authority yet.
func (a *authority) sign(template *x509.Certificate) (*x509.Certificate, crypto.Signer) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore = time.Now().Add(-time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return c, key
}

// write writes the certificate and key of a server on loopback to files.
func (a *authority) write(files server.TLSFiles, name string) {
	a.t.Helper()
	a.writePair(files, &x509.Certificate{Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
}

// writePair signs a certificate and writes it to files, with its key and the authority.
func (a *authority) writePair(files server.TLSFiles, template *x509.Certificate) {
	a.t.Helper()
	c, key := a.sign(template)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.writePEM(files.Key, "PRIVATE KEY", der)
	a.writePEM(files.Cert, "CERTIFICATE", c.Raw)
	a.writePEM(files.CA, "CERTIFICATE", a.cert.Raw)
}

func (a *authority) writePEM(path, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// client returns the TLS configuration of a client; empty name: without a certificate.
func (a *authority) client(name string) *tls.Config {
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AddCert(a.cert)
	if name != "" {
		c, key := a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: name, Organization: []string{"acme"}},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		config.Certificates = []tls.Certificate{{Certificate: [][]byte{c.Raw}, PrivateKey: key}}
	}
	return config
}

// withTLS gives a node a certificate of the authority for clients.
func (a *authority) withTLS(o *server.Options) {
	dir := a.t.TempDir()
	o.ClientTLS = server.TLSFiles{CA: filepath.Join(dir, "ca.crt"), Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")}
	a.write(o.ClientTLS, "first")
}

// whoGRPC asks for the identity of the caller over gRPC.
func whoGRPC(ctx context.Context, n *servertest.Node, config *tls.Config) (string, error) {
	n.T.Helper()
	creds := insecure.NewCredentials()
	if config != nil {
		creds = credentials.NewTLS(config)
	}
	conn, err := grpc.NewClient(n.Server.Addresses().GRPC, n.Dialer(), grpc.WithTransportCredentials(creds))
	if err != nil {
		n.T.Fatal(err)
	}
	defer conn.Close()
	who, err := runlogv1.NewAccessServiceClient(conn).WhoAmI(ctx, &runlogv1.WhoAmIRequest{})
	return who.GetName(), err
}

// secureHTTP sends a request over TLS. The header's values are pairs of name and value.
func secureHTTP(n *servertest.Node, config *tls.Config, target string, header ...string) (servertest.HTTPAnswer, error) {
	n.T.Helper()
	req, err := http.NewRequestWithContext(n.Context(), "GET", "https://"+n.Server.Addresses().HTTP+target, nil)
	if err != nil {
		n.T.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	secure := n.HTTPClient()
	transport := secure.Transport.(*http.Transport)
	transport.TLSClientConfig, transport.ForceAttemptHTTP2 = config, true
	resp, err := secure.Do(req)
	if err != nil {
		return servertest.HTTPAnswer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return servertest.HTTPAnswer{Code: resp.StatusCode, Header: resp.Header, Body: body}, err
}

// TestClientTLSSEC1: clients reach a node with a certificate over TLS 1.3 only. The subject of a
// verified client certificate is an identity, over gRPC and HTTP, also of streams (SEC-2). Of all
// headers, one Authorization alone is a credential.
func TestClientTLSSEC1(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		a, other := newAuthority(t), newAuthority(t)
		var root string
		n := servertest.Start(t, func(o *server.Options) {
			root = servertest.Secured(o)
			a.withTLS(o)
			o.Access.Certificates = []auth.CertificateRule{{Subject: "CN=engine-*,O=acme", Tenants: []string{"acme"}, Roles: []string{"reader"}}}
		})
		const who = `"name":"cert:CN=engine-1,O=acme"`
		engine := a.client("engine-1")
		if name, err := whoGRPC(n.Context(), n, engine); err != nil || name != "cert:CN=engine-1,O=acme" {
			t.Errorf("over gRPC: %q, %v", name, err)
		}
		if got, err := secureHTTP(n, engine, "/v1/whoami"); err != nil || !strings.Contains(string(got.Body), who) {
			t.Errorf("over HTTP: %s, %v", got.Body, err)
		}
		// A stream of a run that does not exist: an identified caller gets that answer.
		if got, err := secureHTTP(n, engine, "/v1/runs/absent/events:read"); err != nil || got.Code != http.StatusNotFound {
			t.Errorf("a stream over HTTP: %d %s, %v", got.Code, got.Body, err)
		}

		nobody := a.client("")
		raw := string(engine.Certificates[0].Certificate[0])
		for what, md := range map[string]metadata.MD{
			"nothing":              nil,
			"gateway's header":     metadata.Pairs("runlog-client-certificate-bin", raw),
			"a member's passport":  metadata.Pairs("runlog-passport-bin", raw),
			"forwarded identities": metadata.Pairs("x-forwarded-user", "engine-1", "x-forwarded-client-cert", "CN=engine-1"),
		} {
			_, err := whoGRPC(metadata.NewOutgoingContext(n.Context(), md), n, nobody)
			if servertest.Refused(t, err, contract.ReasonUnauthenticated); err == nil {
				t.Errorf("%s over gRPC lets the caller in", what)
			}
		}
		bearer := "Bearer " + root
		for what, header := range map[string][]string{
			"nothing":                {},
			"Grpc-Metadata":          {"Grpc-Metadata-Authorization", bearer, "Grpc-Metadata-Runlog-Client-Certificate-Bin", "AAAA"},
			"gateway's header":       {"Runlog-Client-Certificate-Bin", "AAAA"},
			"forwarded identities":   {"X-Forwarded-User", "admin", "X-Forwarded-Client-Cert", "CN=engine-1", "X-Real-Ip", "127.0.0.1"},
			"Proxy-Authorization":    {"Proxy-Authorization", bearer},
			"two of Authorization":   {"Authorization", bearer, "Authorization", bearer},
			"a list of two":          {"Authorization", bearer + ", " + bearer},
			"a token in the address": {"X-Original-Url", "/v1/whoami?access_token=" + root},
			"another scheme":         {"Authorization", "Basic " + root},
		} {
			for _, target := range []string{"/v1/whoami", "/v1/runs/absent/events:read"} {
				got, err := secureHTTP(n, nobody, target, header...)
				if err != nil {
					t.Fatal(err)
				}
				if got.Code != http.StatusUnauthorized {
					t.Errorf("%s at %s: HTTP %d %s", what, target, got.Code, got.Body)
				}
			}
		}
		if got, err := secureHTTP(n, nobody, "/v1/whoami", "Authorization", bearer); err != nil || got.Code != http.StatusOK {
			t.Errorf("a token over HTTP: %d %s, %v", got.Code, got.Body, err)
		}
		// Two are refused also with a certificate.
		if got, err := secureHTTP(n, engine, "/v1/whoami", "Authorization", bearer, "Authorization", bearer); err != nil || got.Code != http.StatusUnauthorized {
			t.Errorf("two of Authorization and a certificate: %d %s, %v", got.Code, got.Body, err)
		}

		strange := other.client("engine-1")
		strange.RootCAs = engine.RootCAs
		old := a.client("")
		old.MaxVersion = tls.VersionTLS12
		for what, config := range map[string]*tls.Config{"a certificate of another authority": strange, "TLS 1.2": old} {
			if _, err := whoGRPC(n.Context(), n, config); err == nil {
				t.Errorf("%s is accepted over gRPC", what)
			}
			if _, err := secureHTTP(n, config, "/v1/whoami"); err == nil {
				t.Errorf("%s is accepted over HTTP", what)
			}
		}
		if _, err := whoGRPC(n.Context(), n, nil); err == nil {
			t.Error("plain text is accepted over gRPC")
		}
		if got := n.HTTP("GET", "/v1/whoami", ""); got.Code != http.StatusBadRequest {
			t.Errorf("plain text over HTTP: %d %s", got.Code, got.Body)
		}
	})
}

// TestClientCertificateReload: a handshake shows the certificate that is in the files, without a
// restart. Files that cannot be used leave the old one, and the log says so once.
func TestClientCertificateReload(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		var log lockedBuffer
		n := servertest.Start(t, func(o *server.Options) {
			a.withTLS(o)
			o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		files := n.Opts.ClientTLS
		shown := func() string {
			t.Helper()
			var names []string
			for address, protocol := range map[string]string{n.Server.Addresses().GRPC: "h2", n.Server.Addresses().HTTP: "http/1.1"} {
				config := a.client("")
				config.NextProtos = []string{"h2", "http/1.1"}
				plain, err := n.DialTo(n.Context(), address)
				if err != nil {
					t.Fatal(err)
				}
				config.ServerName = servertest.Loopback
				conn := tls.Client(plain, config)
				if err := conn.HandshakeContext(n.Context()); err != nil {
					t.Fatal(err)
				}
				state := conn.ConnectionState()
				servertest.WantEqual(t, "protocol of "+address, state.NegotiatedProtocol, protocol)
				names = append(names, state.PeerCertificates[0].Subject.CommonName)
				_ = conn.Close()
			}
			if names[0] != names[1] {
				return ""
			}
			return names[0]
		}
		servertest.WantEqual(t, "certificate", shown(), "first")
		a.write(files, "second")
		bubble.Until(t, "the second certificate is shown", func() bool { return shown() == "second" })
		if err := os.WriteFile(files.Cert, []byte("broken"), 0o600); err != nil {
			t.Fatal(err)
		}
		const warning = "cannot reload client certificates"
		bubble.Until(t, "the log tells of the broken file", func() bool {
			servertest.WantEqual(t, "certificate", shown(), "second")
			return strings.Contains(log.String(), warning)
		})
		a.write(files, "third")
		bubble.Until(t, "the third certificate is shown", func() bool { return shown() == "third" })
		if count := strings.Count(log.String(), warning); count != 1 {
			t.Errorf("%d warnings:\n%s", count, log.String())
		}
	})
}

// TestClientCertificateFaults: a node whose certificate for clients cannot be used does not start,
// and leaves no data directory.
func TestClientCertificateFaults(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		for name, c := range map[string]struct {
			change func(*server.TLSFiles)
			says   string
		}{
			"no such file":    {func(f *server.TLSFiles) { f.Key += "x" }, "no such file"},
			"not its key":     {func(f *server.TLSFiles) { f.Cert = f.CA }, "are no certificate with its key"},
			"no authority":    {func(f *server.TLSFiles) { f.CA = f.Cert }, "that of no certificate authority"},
			"empty authority": {func(f *server.TLSFiles) { f.CA = f.Key }, "holds no certificate"},
		} {
			o := servertest.Options(t)
			a.withTLS(&o)
			c.change(&o.ClientTLS)
			_, err := server.Start(t.Context(), o)
			if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "--tls-cert") {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := o.FS.Stat(o.DataDir); err == nil {
				t.Errorf("%s: the data directory is made", name)
			}
		}
	})
}

// lockedBuffer collects the log of a node.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
