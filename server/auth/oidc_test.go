package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
	"runlog/testbed/network"
)

// accepting returns an authenticator for tokens of a provider.
func accepting(t testing.TB, p *issuer, change ...func(*OIDC)) *Authenticator {
	t.Helper()
	c := OIDC{Issuer: p.URL, Audience: "runlog"}
	for _, f := range change {
		f(&c)
	}
	a, err := New(t.Context(), Options{Config: Config{OIDC: []OIDC{c}}, Transport: p.transport})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *Authenticator) withBearer(t testing.TB, token string) (*Identity, error) {
	t.Helper()
	return a.Authenticate(t.Context(), Credentials{Authorization: []string{"Bearer " + token}})
}

func wantRefused(t testing.TB, what string, i *Identity, err error) {
	t.Helper()
	var e *contract.Error
	if i != nil || !errors.As(err, &e) || e.Reason != contract.ReasonUnauthenticated {
		t.Errorf("%s: %+v, %v; want a refusal", what, i, err)
	}
}

// TestAccessTokensSEC2 lists access tokens: the identity of each, or that it is refused. A refused
// token is not explained, beyond what its owner needs.
func TestAccessTokensSEC2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		p := newIssuerOn(t, network.New(1))
		a := accepting(t, p)
		i, err := a.withBearer(t, p.token(nil))
		want := &Identity{Name: "oidc:" + p.URL + "#worker-1", Tenants: TenantsOf("acme"), Roles: RolesOf(runlogv1.Role_PRODUCER)}
		if err != nil {
			t.Fatal(err)
		}
		want.Until = i.Until
		if !reflect.DeepEqual(i, want) || time.Until(i.Until) < 50*time.Minute {
			t.Errorf("%+v, want %+v", i, want)
		}
		stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		public, err := x509.MarshalPKIXPublicKey(&p.key.Load().Key.(*ecdsa.PrivateKey).PublicKey)
		if err != nil {
			t.Fatal(err)
		}
		pub := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
		now := time.Now()
		good := p.token(nil)
		for what, token := range map[string]string{
			"no signature":              p.signed(jwt.SigningMethodNone, "k1", jwt.UnsafeAllowNoneSignatureType, p.claims(nil)),
			"the public key as secret":  p.signed(jwt.SigningMethodHS256, "k1", pub, p.claims(nil)),
			"another key, same kid":     p.signed(jwt.SigningMethodES256, "k1", stranger, p.claims(nil)),
			"another key, another kid":  p.signed(jwt.SigningMethodES256, "k9", stranger, p.claims(nil)),
			"for another service":       p.token(jwt.MapClaims{"aud": "other"}),
			"for nobody":                p.token(jwt.MapClaims{"aud": nil}),
			"of another issuer":         p.token(jwt.MapClaims{"iss": "https://login.example.com"}),
			"of nobody":                 p.token(jwt.MapClaims{"iss": nil}),
			"expired":                   p.token(jwt.MapClaims{"exp": now.Add(-time.Minute).Unix()}),
			"without an end":            p.token(jwt.MapClaims{"exp": nil}),
			"not yet valid":             p.token(jwt.MapClaims{"nbf": now.Add(time.Minute).Unix()}),
			"with a text as begin":      p.token(jwt.MapClaims{"nbf": "soon"}),
			"without a name":            p.token(jwt.MapClaims{"sub": nil}),
			"with a number as name":     p.token(jwt.MapClaims{"sub": 7}),
			"with another payload":      good[:strings.IndexByte(good, '.')] + "." + strings.Split(p.token(jwt.MapClaims{"sub": "admin"}), ".")[1] + good[strings.LastIndex(good, "."):],
			"cut off":                   good[:len(good)-10],
			"without its signature":     good[:strings.LastIndex(good, ".")+1],
			"empty":                     "",
			"garbage":                   "x.y.z",
			"longer than any":           strings.Repeat("x", maxJWT) + good,
			"an API token of nobody":    TokenPrefix + strings.Repeat("A", 43),
			"no API token at all":       TokenPrefix + "short",
			"two tokens in one":         good + " " + good,
			"a token with a line break": good + "\r\nX-Role: admin",
		} {
			i, err := a.withBearer(t, token)
			wantRefused(t, what, i, err)
		}
		for what, header := range map[string][]string{
			"twice": {"Bearer " + good, "Bearer " + good}, "another scheme": {"Basic " + good}, "no scheme": {good},
		} {
			i, err := a.Authenticate(t.Context(), Credentials{Authorization: header})
			wantRefused(t, what, i, err)
		}
		i, err = a.Authenticate(t.Context(), Credentials{})
		wantRefused(t, "nothing", i, err)
	})
}

// TestClaimsSEC2: the configuration says where tenants and roles are, and what their values mean. A
// claim never grants all tenants, unless the configuration says so.
func TestClaimsSEC2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		p := newIssuerOn(t, network.New(1))
		for what, c := range map[string]struct {
			config func(*OIDC)
			claims jwt.MapClaims
			want   Identity
		}{
			"texts with blanks": {nil, jwt.MapClaims{"tenants": "b a a", "roles": "reader AUDITOR"},
				Identity{Tenants: TenantsOf("a", "b"), Roles: RolesOf(runlogv1.Role_READER, runlogv1.Role_AUDITOR)}},
			"unknown roles":          {nil, jwt.MapClaims{"roles": []any{"king", 7, nil}}, Identity{Tenants: TenantsOf("acme")}},
			"no claims":              {nil, jwt.MapClaims{"roles": nil, "tenants": nil}, Identity{Tenants: TenantsOf()}},
			"objects":                {nil, jwt.MapClaims{"roles": map[string]any{"admin": true}, "tenants": 1}, Identity{Tenants: TenantsOf()}},
			"all tenants by a claim": {nil, jwt.MapClaims{"tenants": []string{"*", "runlog"}}, Identity{Tenants: TenantsOf(), Roles: RolesOf(runlogv1.Role_PRODUCER)}},
			"no tenant":              {nil, jwt.MapClaims{"tenants": []string{""}}, Identity{Tenants: TenantsOf(), Roles: RolesOf(runlogv1.Role_PRODUCER)}},
			"names that no tenant has": {nil, jwt.MapClaims{"tenants": []string{"", "acme", "a\r\nb", "\x00", strings.Repeat("a", 257)}},
				Identity{Tenants: TenantsOf("acme"), Roles: RolesOf(runlogv1.Role_PRODUCER)}},
			"nested and mapped": {func(c *OIDC) {
				c.RolesClaim, c.TenantsClaim, c.NameClaim = "realm.roles", "https://acme.example/groups", "email"
				c.Roles = map[string][]string{"ops": {"operator", "reader"}}
				c.Tenants = map[string][]string{"staff": {"*"}, "acme-team": {"acme"}}
			}, jwt.MapClaims{"realm": map[string]any{"roles": []string{"ops", "admin"}}, "https://acme.example/groups": []string{"staff"}, "email": "jane doe"},
				Identity{Tenants: TenantsOf("*"), Roles: RolesOf(runlogv1.Role_OPERATOR, runlogv1.Role_READER)}},
		} {
			if c.config == nil {
				c.config = func(*OIDC) {}
			}
			i, err := accepting(t, p, c.config).withBearer(t, p.token(c.claims))
			if err != nil {
				t.Errorf("%s: %v", what, err)
				continue
			}
			if !reflect.DeepEqual(i.Tenants, c.want.Tenants) || i.Roles != c.want.Roles {
				t.Errorf("%s: %v as %v, want %v as %v", what, i.Tenants, i.Roles, c.want.Tenants, c.want.Roles)
			}
		}
	})
}

// TestNamesOfAccessTokensSEC8: each record has the name of its caller, so a name is a short text.
func TestNamesOfAccessTokensSEC8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		p := newIssuerOn(t, network.New(1))
		a := accepting(t, p, func(*OIDC) {})
		for _, name := range []string{"", strings.Repeat("a", 257), "a\r\nb", "\x1b[31m", "\u0085"} {
			i, err := a.withBearer(t, p.token(jwt.MapClaims{"sub": name}))
			wantRefused(t, fmt.Sprintf("the name %q", name), i, err)
		}
		if i, err := a.withBearer(t, p.token(jwt.MapClaims{"sub": strings.Repeat("a", 256)})); err != nil || !strings.HasSuffix(i.Name, "#"+strings.Repeat("a", 256)) {
			t.Errorf("the longest name: %+v, %v", i, err)
		}
	})
}

// TestActForClaimSEC10ENV13: a token whose claim has what is no name of an identity, or all of
// them, is refused, and the error names the place.
func TestActForClaimSEC10ENV13(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		p := newIssuerOn(t, network.New(1))
		a := accepting(t, p, func(c *OIDC) { c.ActForClaim = "act_for" })
		for _, odd := range []string{"", " jed", "a\r\nb", "token:", "token:a b", "local", "*", strings.Repeat("a", 257)} {
			i, err := a.withBearer(t, p.token(jwt.MapClaims{"act_for": []string{"token:jed", odd}}))
			wantRefused(t, fmt.Sprintf("the name %q", odd), i, err)
			if err != nil && !strings.Contains(err.Error(), "act_for") {
				t.Errorf("%q: %v", odd, err)
			}
		}
		i, err := a.withBearer(t, p.token(jwt.MapClaims{"act_for": "*"}))
		wantRefused(t, "all names", i, err)
		for claim, want := range map[any][]string{"token:b token:a token:b": {"token:a", "token:b"}, nil: nil, 7: nil} {
			if i, err := a.withBearer(t, p.token(jwt.MapClaims{"act_for": claim})); err != nil || !slices.Equal(i.ActFor, want) {
				t.Errorf("%v: %+v, %v", claim, i, err)
			}
		}
	})
}

// TestFarExpirySEC2: a token that ends later than times can say ends at the last of them.
func TestFarExpirySEC2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		p := newIssuerOn(t, network.New(1))
		i, err := accepting(t, p, func(*OIDC) {}).withBearer(t, p.token(jwt.MapClaims{"exp": int64(9e18)}))
		if err != nil || !i.Until.Equal(endOfTime) {
			t.Errorf("%+v, %v", i, err)
		}
	})
}

// TestKeysSEC2: tokens with unknown keys cause few requests to the provider, however many come.
// Verified tokens and known keys are good while the provider is down. A new key is found soon.
func TestKeysSEC2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		p := newIssuerOn(t, network.New(1))
		a := accepting(t, p)
		p.down.Store(true)
		first := p.token(nil)
		i, err := a.withBearer(t, first)
		wantRefused(t, "before the provider is known", i, err)
		if !strings.Contains(err.Error(), "cannot be verified now") {
			t.Errorf("an unreachable provider: %v", err)
		}
		p.down.Store(false)
		if _, err := a.withBearer(t, first); err != nil {
			t.Fatalf("the provider is up: %v", err)
		}
		p.down.Store(true)
		if _, err := a.withBearer(t, p.token(jwt.MapClaims{"sub": "another"})); err != nil {
			t.Errorf("a known key, while the provider is down: %v", err)
		}
		stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		before := p.fetched.Load()
		for n := range 100 {
			i, err := a.withBearer(t, p.signed(jwt.SigningMethodES256, "k"+strings.Repeat("x", n), stranger, p.claims(nil)))
			wantRefused(t, "an unknown key", i, err)
		}
		if fetched := p.fetched.Load() - before; fetched > keyFetchBurst {
			t.Errorf("100 forged tokens cause %d requests for keys", fetched)
		}
		if _, err := a.withBearer(t, first); err != nil {
			t.Errorf("a verified token, while the provider is down: %v", err)
		}
	})
}

// TestHostileProvider: whatever a provider answers, tokens are refused, and nothing else happens.
func TestHostileProvider(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		for what, answer := range map[string]http.HandlerFunc{
			"without end": func(w http.ResponseWriter, r *http.Request) {
				for r.Context().Err() == nil {
					if _, err := w.Write(make([]byte, 1<<16)); err != nil {
						return
					}
				}
			},
			"no JSON": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
			"no keys": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"keys":[]}`)) },
			"a secret": func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(`{"keys":[{"kty":"oct","kid":"k1","k":"AAAA"}]}`))
			},
			"a redirect": func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "/.well-known/openid-configuration", http.StatusFound)
			},
			"not allowed": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		} {
			p := newIssuerOn(t, network.New(1))
			p.answer.Store(&answer)
			i, err := accepting(t, p).withBearer(t, p.token(nil))
			wantRefused(t, what, i, err)
		}
	})
}

// TestRotatedKeySEC2: a token of a new key is accepted without a restart.
func TestRotatedKeySEC2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		p := newIssuerOn(t, network.New(1))
		a := accepting(t, p)
		if _, err := a.withBearer(t, p.token(nil)); err != nil {
			t.Fatal(err)
		}
		old := p.token(jwt.MapClaims{"sub": "late"})
		p.rotate("k2")
		if _, err := a.withBearer(t, p.token(nil)); err != nil {
			t.Errorf("a token of the new key: %v", err)
		}
		i, err := a.withBearer(t, old)
		wantRefused(t, "a token of the key before, which was never seen", i, err)
	})
}

// TestWithdrawnKeySEC2: a key that the provider has withdrawn is good for some minutes, and not
// until a token with another key comes. While the provider is down, the last known keys are good
// for a day.
func TestWithdrawnKeySEC2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		p := newIssuerOn(t, network.New(1))
		a := accepting(t, p)
		stolen := *p.key.Load()
		forge := func(subject string) string {
			return p.signed(jwt.SigningMethodES256, stolen.KeyID, stolen.Key, p.claims(jwt.MapClaims{"sub": subject, "exp": time.Now().Add(100 * time.Hour).Unix()}))
		}
		if _, err := a.withBearer(t, forge("a")); err != nil {
			t.Fatal(err)
		}
		p.down.Store(true)
		time.Sleep(keysFor)
		if _, err := a.withBearer(t, forge("b")); err != nil {
			t.Errorf("the provider is down: %v", err)
		}
		p.down.Store(false)
		p.rotate("k2")
		i, err := a.withBearer(t, forge("c"))
		wantRefused(t, "a withdrawn key", i, err)
		i, err = a.withBearer(t, forge("a"))
		wantRefused(t, "a token that was verified with a withdrawn key", i, err)
		if _, err := a.withBearer(t, p.token(nil)); err != nil {
			t.Errorf("the new key: %v", err)
		}
		p.down.Store(true)
		time.Sleep(keysAtMost)
		i, err = a.withBearer(t, p.token(jwt.MapClaims{"exp": time.Now().Add(time.Hour).Unix()}))
		wantRefused(t, "keys of a day ago", i, err)
	})
}

// TestWithdrawnKeyTimeSEC2: a token that was verified just before the keys are fetched again does
// not count 10 minutes after its key was withdrawn.
func TestWithdrawnKeyTimeSEC2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		p := newIssuerOn(t, network.New(1))
		now := time.Now()
		a := accepting(t, p)
		long := jwt.MapClaims{"exp": now.Add(time.Hour).Unix()}
		if _, err := a.withBearer(t, p.token(long)); err != nil {
			t.Fatal(err)
		}
		stolen := p.token(jwt.MapClaims{"sub": "thief", "exp": now.Add(time.Hour).Unix()})
		p.rotate("k2")
		withdrawn := time.Now()
		time.Sleep(keysFor - time.Second)
		if _, err := a.withBearer(t, stolen); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(withdrawn.Add(10 * time.Minute)))
		i, err := a.withBearer(t, stolen)
		wantRefused(t, "a key that was withdrawn 10 minutes ago", i, err)
	})
}

// TestThousandsOfKeysSEC2: a provider that rotates its key with every token costs a bounded number
// of requests, and the node remembers a bounded number of tokens.
func TestThousandsOfKeysSEC2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		p := newIssuerOn(t, network.New(1))
		a := accepting(t, p)
		before := p.fetched.Load()
		began := time.Now()
		for n := range 3000 {
			p.rotate(fmt.Sprint("k", n))
			if i, err := a.withBearer(t, p.token(nil)); err != nil {
				wantRefused(t, "a key that was not fetched", i, err)
			}
		}
		most := keyFetchBurst + int32(time.Since(began)/keyFetchEvery) + 1
		if fetched := p.fetched.Load() - before; fetched > most {
			t.Errorf("%d requests for keys, at most %d wanted", fetched, most)
		}
		if n := a.providers[0].verified.Len(); n > int(most) {
			t.Errorf("%d tokens are remembered", n)
		}
	})
}
