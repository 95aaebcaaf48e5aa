package target

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
)

// Secured is a node with access control: TLS, access tokens of a provider, limits of tenants, and
// the access log.
type Secured struct {
	*Node
	provider *http.Server
}

// StartSecured starts a node with access control and a provider for it, and returns once the node
// takes appends. The callers have a token of the provider for some tenants, whose limits count and
// are never reached.
func StartSecured(ctx context.Context, o NodeOptions, tenants []string) (_ *Secured, err error) {
	s := &Secured{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	authorities, err := makeCertificate(o.Dir)
	if err != nil {
		return nil, err
	}
	issuer, token, err := s.startProvider(tenants)
	if err != nil {
		return nil, err
	}
	config, admin := filepath.Join(o.Dir, "access.yaml"), filepath.Join(o.Dir, "admin.token")
	text := fmt.Sprintf("oidc:\n  - issuer: %s\n    audience: runlog\n", issuer)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	o.flags = []string{"--tls-cert", filepath.Join(o.Dir, certFile), "--tls-key", filepath.Join(o.Dir, keyFile),
		"--auth", "required", "--access-config", config, "--admin-token-file", admin}
	o.dial = []grpc.DialOption{
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS13})),
		grpc.WithPerRPCCredentials(bearer(token)),
	}
	if s.Node, err = StartNode(ctx, o); err != nil {
		return nil, err
	}
	return s, s.setLimits(ctx, admin, authorities)
}

// setLimits gives every tenant limits that it does not reach.
func (s *Secured) setLimits(ctx context.Context, adminFile string, authorities *x509.CertPool) error {
	token, err := os.ReadFile(adminFile)
	if err != nil {
		return err
	}
	c, err := client.Dial(s.Address, client.Options{Token: strings.TrimSpace(string(token)), TLS: &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS13}})
	if err != nil {
		return err
	}
	_, err = c.SetTenantLimits(ctx, "*", &runlogv1.TenantLimits{
		EventsPerSecond: 1 << 40, BytesPerSecond: 1 << 50, Streams: 1 << 20, StoredBytes: 1 << 60, RunningRuns: 10_000,
	})
	return errors.Join(err, c.Close())
}

// Close stops the node and the provider.
func (s *Secured) Close() error {
	var errs []error
	if s.Node != nil {
		errs = append(errs, s.Node.Close())
	}
	if s.provider != nil {
		errs = append(errs, s.provider.Close())
	}
	return errors.Join(errs...)
}

// Files of the node's certificate.
const (
	certFile = "tls.crt"
	keyFile  = "tls.key"
)

// makeCertificate writes a certificate for loopback and its key, and returns the authorities that
// accept it.
func makeCertificate(dir string) (*x509.CertPool, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(text)
	return authorities, errors.Join(
		os.WriteFile(filepath.Join(dir, certFile), text, 0o600),
		os.WriteFile(filepath.Join(dir, keyFile), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
}

// startProvider serves the keys of a provider of access tokens, and makes the token of the callers.
func (s *Secured) startProvider(tenants []string) (issuer, token string, err error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return "", "", err
	}
	listener, err := net.Listen("tcp", loopback)
	if err != nil {
		return "", "", err
	}
	issuer = "http://" + listener.Addr().String()
	mux := http.NewServeMux()
	for path, answer := range map[string]any{
		"/.well-known/openid-configuration": map[string]any{"issuer": issuer, "jwks_uri": issuer + "/keys"},
		"/keys":                             jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "1", Algorithm: "RS256", Use: "sig"}}},
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(answer)
		})
	}
	s.provider = &http.Server{Handler: mux, ReadHeaderTimeout: NodeStart}
	go func() { _ = s.provider.Serve(listener) }()
	claims, err := json.Marshal(map[string]any{
		"iss": issuer, "aud": "runlog", "sub": "bench", "exp": time.Now().Add(24 * time.Hour).Unix(),
		"tenants": tenants, "roles": []string{"producer", "reader"},
	})
	if err != nil {
		return "", "", err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: key, KeyID: "1"}}, nil)
	if err != nil {
		return "", "", err
	}
	signed, err := signer.Sign(claims)
	if err != nil {
		return "", "", err
	}
	token, err = signed.CompactSerialize()
	return issuer, token, err
}

// bearer is a token that is sent with every call.
type bearer string

// GetRequestMetadata is credentials.PerRPCCredentials'.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity is credentials.PerRPCCredentials'.
func (b bearer) RequireTransportSecurity() bool { return true }
