package auth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"runlog/proto/contract"
	"runlog/storage/machine/tenant"
)

const (
	defaultSkew = 30 * time.Second
	maxSkew     = 5 * time.Minute
	// maxJWT exceeds the size of access tokens with hundreds of groups, in bytes.
	maxJWT = 16 << 10
	// verifiedTokens are remembered. Each takes about 300 bytes.
	verifiedTokens = 10_000
	// rememberFor bounds how long a verified token is taken without another look at its signature.
	rememberFor = 5 * time.Minute
	// keyFetchEvery and keyFetchBurst bound the requests to a provider. Without a bound, each token
	// with an unknown key would cause one.
	keyFetchEvery = 5 * time.Second
	keyFetchBurst = 3
	// fetchTimeout bounds one request to a provider.
	fetchTimeout = 5 * time.Second
	// maxAnswer bounds the answer of a provider, in bytes.
	maxAnswer = 1 << 20
)

// asymmetric are the signatures that an access token may have. Never "none", and none with a shared
// secret: with those, every reader of the public key could make tokens.
var asymmetric = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA,
}

func isAsymmetric(name string) bool { return slices.Contains(asymmetric, name) }

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// provider verifies the access tokens of one issuer.
type provider struct {
	config   *OIDC
	clock    func() time.Time
	client   *http.Client
	limit    *rate.Limiter   // of the client's requests
	life     context.Context // of the requests for keys
	log      *slog.Logger
	told     *rate.Limiter
	verifier atomic.Pointer[oidc.IDTokenVerifier]
	verified *lru.Cache[[sha256.Size]byte, remembered]
}

// remembered is a token that was verified.
type remembered struct {
	identity *Identity
	until    time.Time
}

func newProvider(life context.Context, config *OIDC, o *Options) (*provider, error) {
	verified, err := lru.New[[sha256.Size]byte, remembered](verifiedTokens)
	if err != nil {
		return nil, err
	}
	limit := rate.NewLimiter(rate.Every(keyFetchEvery), keyFetchBurst)
	limited := &limitedFetch{limiter: limit, next: o.Transport}
	return &provider{
		limit:  limit,
		config: config, clock: o.Clock, log: o.Logger, life: life, verified: verified, told: rate.NewLimiter(1, 1),
		client: &http.Client{Transport: limited, Timeout: fetchTimeout, CheckRedirect: refuseRedirect},
	}, nil
}

// refuseRedirect keeps the request for keys at the provider that the operator named.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// limitedFetch bounds the number and size of requests to a provider.
type limitedFetch struct {
	limiter *rate.Limiter
	next    http.RoundTripper
}

var errTooManyFetches = errors.New("auth: the provider was asked a moment ago")

func (l *limitedFetch) RoundTrip(req *http.Request) (*http.Response, error) {
	if !l.limiter.Allow() {
		return nil, errTooManyFetches
	}
	resp, err := l.next.RoundTrip(req)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer)
	}
	return resp, err
}

// errProvider is the error for a caller whose provider cannot be asked.
var errProvider = &contract.Error{
	Reason: contract.ReasonUnauthenticated,
	Message: "the token cannot be verified now, because this node cannot fetch the keys of its issuer; try again, or ask the operator: " +
		"the node's log says why",
}

// discover returns the verifier. It asks the provider for its description once.
func (p *provider) discover() (*oidc.IDTokenVerifier, error) {
	if v := p.verifier.Load(); v != nil {
		return v, nil
	}
	found, err := oidc.NewProvider(oidc.ClientContext(p.life, p.client), p.config.Issuer)
	if err != nil {
		return nil, err
	}
	algorithms := p.config.Algorithms
	if len(algorithms) == 0 {
		algorithms = asymmetric
	}
	var about struct {
		Keys string `json:"jwks_uri"`
	}
	if err := found.Claims(&about); err != nil {
		return nil, err
	}
	v := oidc.NewVerifier(p.config.Issuer, &providerKeys{life: p.life, url: about.Keys, client: p.client, clock: p.clock}, &oidc.Config{
		ClientID: p.config.Audience, SupportedSigningAlgs: algorithms, Now: p.clock,
		SkipExpiryCheck: true, // Times are checked here, with the skew of the configuration.
	})
	p.verifier.Store(v)
	return v, nil
}

// known returns the identity of a token that was verified a moment ago; nil: it was not.
func (p *provider) known(hash [sha256.Size]byte) *Identity {
	known, ok := p.verified.Get(hash)
	if !ok {
		return nil
	}
	if !p.clock().Before(known.until) {
		p.verified.Remove(hash)
		return nil
	}
	return known.identity
}

// identity verifies a token, and returns the identity that presents it.
func (p *provider) identity(ctx context.Context, text string, hash [sha256.Size]byte) (*Identity, error) {
	now := p.clock()
	v, err := p.discover()
	if err != nil {
		p.tell(err)
		return nil, errProvider
	}
	token, err := v.Verify(ctx, text)
	if err != nil {
		p.tell(err)
		return nil, errRefused
	}
	i, err := p.read(token, now)
	if err != nil {
		return nil, err
	}
	until := now.Add(rememberFor)
	if i.Until.Before(until) {
		until = i.Until
	}
	p.verified.Add(hash, remembered{i, until})
	return i, nil
}

// read makes the identity of a token whose signature, issuer and audience are right.
func (p *provider) read(token *oidc.IDToken, now time.Time) (*Identity, error) {
	var claims map[string]any
	if err := token.Claims(&claims); err != nil {
		return nil, errRefused
	}
	skew := p.config.Skew
	if skew == 0 {
		skew = defaultSkew
	}
	until := token.Expiry.Add(skew)
	if until.After(endOfTime) {
		until = endOfTime
	}
	if token.Expiry.IsZero() || !now.Before(until) || early(claims["nbf"], now.Add(skew)) {
		return nil, errRefused
	}
	name, _ := claim(claims, cmp.Or(p.config.NameClaim, "sub")).(string)
	tenants := mapped(texts(claim(claims, cmp.Or(p.config.TenantsClaim, "tenants"))), p.config.Tenants)
	if name == "" {
		return nil, unauthenticated("the token has no name: the claim " + cmp.Or(p.config.NameClaim, "sub") + " is missing")
	}
	if fault := contract.TextFault(name); fault != "" { // Each record has the name (SEC-8).
		return nil, unauthenticated("the token has no name: the claim " + cmp.Or(p.config.NameClaim, "sub") + " " + fault)
	}
	tenants = slices.DeleteFunc(tenants, func(name string) bool { return contract.TextFault(name) != "" })
	var roles Roles
	for _, text := range mapped(texts(claim(claims, cmp.Or(p.config.RolesClaim, "roles"))), p.config.Roles) {
		if role := ParseRole(text); role != 0 {
			roles |= RolesOf(role)
		}
	}
	i := &Identity{Name: "oidc:" + p.config.Issuer + "#" + name, Tenants: TenantsOf(tenants...), Roles: roles, Until: until}
	if p.config.ActForClaim != "" {
		var fault string
		i.ActFor = ActForOf(texts(claim(claims, p.config.ActForClaim)), func(place, wrong string) { fault = place + " " + wrong })
		if slices.Contains(i.ActFor, AllNames) {
			fault = " names all identities, which a claim cannot"
		}
		if fault != "" {
			return nil, unauthenticated("the token cannot be used: the claim " + p.config.ActForClaim + fault)
		}
	}
	return i, nil
}

// endOfTime is the last time that passports and answers can have. A provider may write a later one.
var endOfTime = time.Unix(0, math.MaxInt64)

// early reports whether the claim nbf is after a time, or is no time.
func early(claim any, now time.Time) bool {
	if claim == nil {
		return false
	}
	seconds, ok := claim.(float64)
	return !ok || float64(now.Unix()) < seconds
}

// claim returns the claim with a name. A point leads into an object, unless a claim has the whole
// name.
func claim(claims map[string]any, name string) any {
	if value, ok := claims[name]; ok {
		return value
	}
	outer, inner, more := strings.Cut(name, ".")
	if object, ok := claims[outer].(map[string]any); more && ok {
		return claim(object, inner)
	}
	return nil
}

// texts returns the texts of a claim: a list, or one text with blanks in between (RFC 8693, scope).
func texts(claim any) (list []string) {
	switch claim := claim.(type) {
	case string:
		return strings.Fields(claim)
	case []any:
		for _, v := range claim {
			if text, ok := v.(string); ok {
				list = append(list, text)
			}
		}
	}
	return list
}

// mapped replaces values by those of a table, if there is one. Only the table names all tenants,
// and the tenant of the access log: a claim that a user may choose must not.
func mapped(values []string, table map[string][]string) (list []string) {
	if len(table) == 0 {
		return slices.DeleteFunc(values, func(v string) bool { return v == AllTenants || v == tenant.Cluster })
	}
	for _, v := range values {
		list = append(list, table[v]...)
	}
	return list
}

// issuerOf returns the claim iss of a token that is not verified yet.
func issuerOf(text string) string {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return ""
	}
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if json.Unmarshal(body, &claims) != nil {
		return ""
	}
	return claims.Issuer
}

// tell logs why a token is refused, at most once a second: every client may send tokens.
func (p *provider) tell(err error) {
	if !errors.Is(err, errTooManyFetches) && p.told.Allow() {
		p.log.Warn("access token refused", "issuer", p.config.Issuer, "err", err)
	}
}
