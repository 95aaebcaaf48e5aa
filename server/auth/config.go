package auth

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"runlog/proto/contract"
)

// Config is the content of the file of --access-config. API tokens need no configuration.
type Config struct {
	// OIDC are the providers whose access tokens are accepted.
	OIDC []OIDC `yaml:"oidc"`
	// Certificates map the subjects of client certificates to identities. The first rule that
	// matches counts.
	Certificates []CertificateRule `yaml:"certificates"`
}

// OIDC is one provider of access tokens: JWTs, signed with a key that the provider publishes
// (OpenID Connect Discovery 1.0, RFC 9068).
type OIDC struct {
	// Issuer is the claim iss, and where the provider describes itself.
	Issuer string `yaml:"issuer"`
	// Audience must be among the claim aud.
	Audience string `yaml:"audience"`
	// Skew is how wrong the clocks may be. Default: 30 s.
	Skew time.Duration `yaml:"skew"`
	// NameClaim has the name of the identity. Default: sub.
	NameClaim string `yaml:"nameClaim"`
	// TenantsClaim has the tenants, and RolesClaim the roles: a list of texts, or one text with
	// blanks in between. A point in the name of a claim leads into an object. Default: tenants,
	// roles.
	TenantsClaim string `yaml:"tenantsClaim"`
	RolesClaim   string `yaml:"rolesClaim"`
	// ActForClaim has the names of the identities in whose names the identity may attest, in the
	// same forms (SEC-10). Empty: its own alone.
	ActForClaim string `yaml:"actForClaim"`
	// Tenants and Roles map what the claims have to tenants and roles. A value without a row counts
	// as it is, or, if there are rows, not at all.
	Tenants map[string][]string `yaml:"tenants"`
	Roles   map[string][]string `yaml:"roles"`
	// Algorithms are the accepted signatures. Default: RS256, ES256, EdDSA and the stronger ones of
	// their kind. A token without a signature, or with one that uses a shared secret, is never
	// accepted.
	Algorithms []string `yaml:"algorithms"`
}

// CertificateRule gives an identity to client certificates.
type CertificateRule struct {
	// Subject is an RFC 2253 name such as CN=engine-1,O=acme. A * matches any characters within one
	// part.
	Subject string   `yaml:"subject"`
	Tenants []string `yaml:"tenants"`
	Roles   []string `yaml:"roles"`
	// ActFor are the names of the identities in whose names it may attest; AllNames alone: every
	// one.
	ActFor []string `yaml:"actFor"`
}

// ParseConfig reads a file. It refuses members that it does not know.
func ParseConfig(text []byte) (c Config, err error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return c, fmt.Errorf("access configuration: %w", err)
	}
	if err := d.Decode(new(Config)); !errors.Is(err, io.EOF) {
		return c, errors.New("access configuration: the file has more than one document: what follows the first would not count")
	}
	return c, c.Validate()
}

// Validate reports every fault.
func (c *Config) Validate() error {
	var faults []error
	fault := func(where string, format string, args ...any) {
		faults = append(faults, fmt.Errorf("access configuration: %s: %s", where, fmt.Sprintf(format, args...)))
	}
	seen := map[string]bool{}
	for i := range c.OIDC {
		p := &c.OIDC[i]
		where := fmt.Sprintf("oidc[%d]", i)
		p.validate(func(field, format string, args ...any) { fault(where+"."+field, format, args...) })
		if seen[p.Issuer] {
			fault(where+".issuer", "%s appears twice: keep one", p.Issuer)
		}
		seen[p.Issuer] = true
	}
	for i := range c.Certificates {
		r := &c.Certificates[i]
		where := fmt.Sprintf("certificates[%d]", i)
		if _, err := parseSubject(r.Subject); err != nil {
			fault(where+".subject", "%q is no subject: %v; want one such as CN=engine-*,O=acme", r.Subject, err)
		}
		if len(r.Tenants) == 0 {
			fault(where+".tenants", "is empty; name tenants, or %q for all", AllTenants)
		}
		checkTenants(r.Tenants, func(wrong string) { fault(where+".tenants", "%s", wrong) })
		if _, err := rolesOf(r.Roles); err != nil {
			fault(where+".roles", "%v", err)
		}
		ActForOf(r.ActFor, func(place, wrong string) { fault(where+".actFor"+place, "%s", wrong) })
	}
	return errors.Join(faults...)
}

func (p *OIDC) validate(fault func(field, format string, args ...any)) {
	u, err := url.Parse(p.Issuer)
	switch {
	case err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		fault("issuer", "%q is no URL of a provider; want one such as https://login.example.com", p.Issuer)
	case marginFault(p.Issuer) != "":
		fault("issuer", "%s", marginFault(p.Issuer))
	case u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())):
		fault("issuer", "%q must begin with https:// (http:// is only taken for a provider on this machine)", p.Issuer)
	}
	if p.Audience == "" {
		fault("audience", "is required: a token for another service must not be accepted")
	}
	for _, text := range []struct{ field, value string }{
		{"audience", p.Audience}, {"nameClaim", p.NameClaim}, {"tenantsClaim", p.TenantsClaim}, {"rolesClaim", p.RolesClaim},
		{"actForClaim", p.ActForClaim},
	} {
		if wrong := marginFault(text.value); text.value != "" && wrong != "" {
			fault(text.field, "%s", wrong)
		}
	}
	if p.Skew < 0 || p.Skew > maxSkew {
		fault("skew", "%v is not between 0 and %v", p.Skew, maxSkew)
	}
	for value, tenants := range p.Tenants {
		if wrong := marginFault(value); wrong != "" {
			fault("tenants", "the value %s", wrong)
		}
		checkTenants(tenants, func(wrong string) { fault("tenants."+value, "%s", wrong) })
	}
	for value, roles := range p.Roles {
		if wrong := marginFault(value); wrong != "" {
			fault("roles", "the value %s", wrong)
		}
		if _, err := rolesOf(roles); err != nil {
			fault("roles."+value, "%v", err)
		}
	}
	for _, name := range p.Algorithms {
		if !isAsymmetric(name) {
			fault("algorithms", "%q is not one of %s", name, strings.Join(asymmetric, ", "))
		}
	}
}

// marginFault says what is wrong with white space around a text, such as one that a template has
// left blank: no token would match it, or one of another service. Empty: nothing is.
func marginFault(text string) string {
	switch trimmed := strings.TrimSpace(text); {
	case trimmed == "":
		return contract.Quote(text) + " is blank; write a value, or leave the line out"
	case trimmed != text:
		return contract.Quote(text) + " begins or ends with white space; remove it"
	default:
		return ""
	}
}

// checkTenants reports names that no tenant can have, such as the empty one of a variable without a
// value.
func checkTenants(names []string, fault func(wrong string)) {
	for _, name := range names {
		if wrong := contract.TextFault(name); strings.TrimSpace(name) == "" || wrong != "" {
			fault(fmt.Sprintf("%s is no tenant: it %s", contract.Quote(name), cmp.Or(wrong, "is blank")))
		}
	}
}
