package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"

	"runlog/testbed/network"
)

// issuer is an OpenID provider: a description, keys, and tokens on demand.
type issuer struct {
	*httptest.Server
	t       testing.TB
	key     atomic.Pointer[jose.JSONWebKey]
	fetched atomic.Int32
	down    atomic.Bool
	answer  atomic.Pointer[http.HandlerFunc] // in the place of the keys; nil: the keys
	// transport of requests to it; nil: the system's network
	transport http.RoundTripper
}

// newIssuer returns an issuer on the system's network.
func newIssuer(t testing.TB) *issuer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveIssuer(t, l, nil)
}

// newIssuerOn returns an issuer on a network in fake time.
func newIssuerOn(t testing.TB, n *network.Network) *issuer {
	t.Helper()
	l, err := n.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, to string) (net.Conn, error) {
		return n.Dial(ctx, "127.0.0.1", to)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return serveIssuer(t, l, transport)
}

func serveIssuer(t testing.TB, l net.Listener, transport http.RoundTripper) *issuer {
	p := &issuer{t: t, transport: transport}
	p.rotate("k1")
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		if p.down.Load() {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": p.URL, "jwks_uri": p.URL + "/keys",
			"authorization_endpoint": p.URL + "/a", "token_endpoint": p.URL + "/t", "id_token_signing_alg_values_supported": []string{"ES256"}})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, r *http.Request) {
		p.fetched.Add(1)
		switch answer := p.answer.Load(); {
		case p.down.Load():
			http.Error(w, "down", http.StatusServiceUnavailable)
		case answer != nil:
			(*answer)(w, r)
		default:
			_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{p.key.Load().Public()}})
		}
	})
	p.Server = &httptest.Server{Listener: l, Config: &http.Server{Handler: mux}}
	p.Start()
	t.Cleanup(p.Close)
	return p
}

func (p *issuer) rotate(kid string) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	p.key.Store(&jose.JSONWebKey{Key: k, KeyID: kid, Algorithm: "ES256", Use: "sig"})
}

// claims are those of an accepted token, with changes; nil removes a claim.
func (p *issuer) claims(changes jwt.MapClaims) jwt.MapClaims {
	c := jwt.MapClaims{
		"iss": p.URL, "aud": "runlog", "sub": "worker-1", "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(),
		"tenants": []string{"acme"}, "roles": []string{"producer"},
	}
	maps.Copy(c, changes)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

// token signs claims with the current key.
func (p *issuer) token(changes jwt.MapClaims) string {
	k := p.key.Load()
	return p.signed(jwt.SigningMethodES256, k.KeyID, k.Key, p.claims(changes))
}

func (p *issuer) signed(method jwt.SigningMethod, kid string, key any, claims jwt.MapClaims) string {
	token := jwt.NewWithClaims(method, claims)
	token.Header["kid"] = kid
	text, err := token.SignedString(key)
	if err != nil {
		p.t.Fatal(err)
	}
	return text
}
