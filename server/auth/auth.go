package auth

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"runlog/proto/contract"
)

// Credentials are what a caller presents. A bearer token counts, if there is one; else the
// certificate.
type Credentials struct {
	// Authorization are the values of the header; more than one is refused.
	Authorization []string
	// Certificate is that of the client, verified against the CA for clients; nil: none.
	Certificate *x509.Certificate
}

// Options of an Authenticator.
type Options struct {
	Config Config
	// Token returns the stored token with a hash; nil: there is none.
	Token func(context.Context, TokenHash) (*Token, error)
	// Open lets callers without credentials in, as Local.
	Open bool
	// Transport carries the requests to OpenID providers. Default: http.DefaultTransport.
	Transport http.RoundTripper
	// Clock is that of the node. Default: time.Now.
	Clock func() time.Time
	// Logger gets what an operator must know of providers. Default: none.
	Logger *slog.Logger
}

// Authenticator finds the identity of a caller. Its methods may be called by many goroutines.
type Authenticator struct {
	opts      Options
	providers []*provider
	subjects  []subjectRule
	tickets   tickets
}

// subjectRule is a CertificateRule that was read.
type subjectRule struct {
	pattern subjectPattern
	tenants Tenants
	roles   Roles
	actFor  []string
}

// New returns an authenticator. Providers are asked for their keys when the first token comes, and
// again when they change, until ctx ends.
func New(ctx context.Context, opts Options) (*Authenticator, error) {
	if opts.Transport == nil {
		opts.Transport = http.DefaultTransport
	}
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if err := opts.Config.Validate(); err != nil {
		return nil, err
	}
	a := &Authenticator{opts: opts}
	for i := range opts.Config.OIDC {
		p, err := newProvider(ctx, &opts.Config.OIDC[i], &opts)
		if err != nil {
			return nil, err
		}
		a.providers = append(a.providers, p)
	}
	for i := range opts.Config.Certificates {
		c := &opts.Config.Certificates[i]
		pattern, wrong := parseSubject(c.Subject)
		roles, err := rolesOf(c.Roles)
		if err := errors.Join(wrong, err); err != nil {
			return nil, err
		}
		a.subjects = append(a.subjects, subjectRule{pattern, TenantsOf(c.Tenants...), roles, c.ActFor})
	}
	return a, nil
}

// Errors of refused credentials, as their owner gets them.
var (
	errMissing = unauthenticated("this node demands authentication: send the header \"Authorization: Bearer …\" with an API token or an access token, or a client certificate")
	errTwice   = unauthenticated("the header Authorization appears more than once: send one")
	errScheme  = unauthenticated("the header Authorization has another scheme: send \"Authorization: Bearer …\"")
	errRefused = unauthenticated("the token is not accepted: it is unknown, revoked or expired, or not meant for this cluster; get a new one")
)

func unauthenticated(message string) error {
	return &contract.Error{Reason: contract.ReasonUnauthenticated, Message: message}
}

// Authenticate returns the identity that presents the credentials. The error is one for the caller,
// or, if a token cannot be looked up, of the node.
func (a *Authenticator) Authenticate(ctx context.Context, c Credentials) (*Identity, error) {
	switch {
	case len(c.Authorization) > 1:
		return nil, errTwice
	case len(c.Authorization) == 1:
		scheme, text, _ := strings.Cut(c.Authorization[0], " ")
		if scheme == TicketScheme {
			return a.watcher(text)
		}
		if !strings.EqualFold(scheme, "Bearer") {
			return nil, errScheme
		}
		return a.bearer(ctx, strings.TrimSpace(text))
	case c.Certificate != nil:
		return a.certificate(c.Certificate)
	case a.opts.Open:
		return Local, nil
	default:
		return nil, errMissing
	}
}

// Valid returns an error once an identity that Authenticate returned has lost its right (SEC-5):
// its credential has ended, or its token is revoked.
func (a *Authenticator) Valid(ctx context.Context, i *Identity) error {
	switch {
	case !i.Until.IsZero() && !a.opts.Clock().Before(i.Until):
		return errRefused
	case i.token != TokenHash{}:
		_, err := a.token(ctx, i.token)
		return err
	default:
		return nil
	}
}

func (a *Authenticator) bearer(ctx context.Context, text string) (*Identity, error) {
	if hash, ok := ParseToken(text); ok {
		return a.token(ctx, hash)
	}
	if len(text) > maxJWT {
		return nil, errRefused
	}
	hash := sha256.Sum256([]byte(text))
	for _, p := range a.providers { // First: to find out the issuer costs more.
		if i := p.known(hash); i != nil {
			return i, nil
		}
	}
	issuer := issuerOf(text)
	for _, p := range a.providers {
		if p.config.Issuer == issuer {
			return p.identity(ctx, text, hash)
		}
	}
	return nil, errRefused
}

func (a *Authenticator) token(ctx context.Context, hash TokenHash) (*Identity, error) {
	if a.opts.Token == nil {
		return nil, errRefused
	}
	t, err := a.opts.Token(ctx, hash)
	if err != nil {
		return nil, fmt.Errorf("auth: look up a token: %w", err)
	}
	if t == nil || t.Revoked || !t.Until.IsZero() && !a.opts.Clock().Before(t.Until) {
		return nil, errRefused
	}
	return t.identity(hash), nil
}

var errSubject = unauthenticated("the client certificate's subject is not known to this cluster")

func (a *Authenticator) certificate(c *x509.Certificate) (*Identity, error) {
	subject := c.Subject.String()
	if !a.opts.Clock().Before(c.NotAfter) || hidesNames(c.Subject.Names) {
		return nil, errSubject
	}
	for _, r := range a.subjects {
		if r.pattern.matches(subject) {
			return &Identity{Name: "cert:" + subject, Tenants: r.tenants, Roles: r.roles, ActFor: r.actFor, Until: c.NotAfter}, nil
		}
	}
	return nil, errSubject
}

func rolesOf(names []string) (Roles, error) {
	var roles Roles
	for _, name := range names {
		role := ParseRole(name)
		if role == 0 {
			return 0, fmt.Errorf("%q is no role; the roles are %s", name, AllRoles)
		}
		roles |= RolesOf(role)
	}
	if roles == 0 {
		return 0, errors.New("names no role")
	}
	return roles, nil
}
