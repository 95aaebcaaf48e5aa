package auth

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"reflect"
	"strings"
	"testing"
	"time"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// TestTokensSEC2: an API token is found by its hash, and is refused once it has expired or was
// revoked, also for a stream that began before (SEC-5).
func TestTokensSEC2(t *testing.T) {
	t.Parallel()
	text, hash := NewToken()
	if len(text) != len(TokenPrefix)+43 {
		t.Errorf("a token has %d characters", len(text))
	}
	now := time.Now()
	stored := map[TokenHash]*Token{hash: {ID: "1", Name: "ci", Tenants: TenantsOf("acme"), Roles: RolesOf(runlogv1.Role_READER), Until: now.Add(time.Hour)}}
	a, err := New(t.Context(), Options{
		Token: func(_ context.Context, h TokenHash) (*Token, error) { return stored[h], nil }, Clock: func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	i, err := a.withBearer(t, text)
	if err != nil || i.Name != "token:ci" || !i.Sees("acme") || i.Sees("other") || !i.May(RolesOf(runlogv1.Role_READER)) || i.May(RolesOf(runlogv1.Role_ADMIN)) {
		t.Fatalf("%+v, %v", i, err)
	}
	if err := a.Valid(t.Context(), i); err != nil {
		t.Error(err)
	}
	for _, wrong := range []string{text[:len(text)-1], text + "A", strings.ToUpper(text), "rlk_" + text} {
		other, err := a.withBearer(t, wrong)
		wantRefused(t, wrong, other, err)
	}
	stored[hash].Revoked = true
	other, err := a.withBearer(t, text)
	wantRefused(t, "revoked", other, err)
	wantRefused(t, "revoked, in a stream", nil, a.Valid(t.Context(), i))
	stored[hash].Revoked = false
	now = now.Add(time.Hour)
	other, err = a.withBearer(t, text)
	wantRefused(t, "expired", other, err)
	wantRefused(t, "expired, in a stream", nil, a.Valid(t.Context(), i))
}

// TestCertificatesSEC2: rules give identities to subjects; the first that matches counts.
func TestCertificatesSEC2(t *testing.T) {
	t.Parallel()
	config, err := ParseConfig([]byte(`
certificates:
  - {subject: "CN=engine-*,O=acme", tenants: [acme], roles: [producer, reader]}
  - {subject: "CN=*,O=acme", tenants: [acme], roles: [reader]}
`))
	if err != nil {
		t.Fatal(err)
	}
	a, err := New(t.Context(), Options{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	for subject, want := range map[string]Roles{
		"engine-1": RolesOf(runlogv1.Role_PRODUCER, runlogv1.Role_READER), "ui": RolesOf(runlogv1.Role_READER),
		"engine-1,O=evil": RolesOf(runlogv1.Role_PRODUCER, runlogv1.Role_READER), // a name
	} {
		c := &x509.Certificate{Subject: pkix.Name{CommonName: subject, Organization: []string{"acme"}}, NotAfter: time.Now().Add(time.Hour)}
		i, err := a.Authenticate(t.Context(), Credentials{Certificate: c})
		if err != nil || i.Roles != want || !reflect.DeepEqual(i.Tenants, TenantsOf("acme")) || !i.Until.Equal(c.NotAfter) {
			t.Errorf("%s: %+v, %v", subject, i, err)
		}
	}
	for what, name := range map[string]pkix.Name{
		"another organisation":                {CommonName: "engine-1", Organization: []string{"other"}},
		"the organisation in the common name": {CommonName: "engine-1,O=acme"},
		"two units":                           {CommonName: "engine-1", Organization: []string{"acme"}, OrganizationalUnit: []string{"x"}},
		"nobody":                              {},
		"two common names": {CommonName: "engine-1", Organization: []string{"acme"}, Names: []pkix.AttributeTypeAndValue{
			{Type: oidCommonName, Value: "evil"}, {Type: oidCommonName, Value: "engine-1"}}},
	} {
		i, err := a.Authenticate(t.Context(), Credentials{Certificate: &x509.Certificate{Subject: name, NotAfter: time.Now().Add(time.Hour)}})
		wantRefused(t, what, i, err)
	}
	i, err := a.Authenticate(t.Context(), Credentials{Certificate: &x509.Certificate{
		Subject: pkix.Name{CommonName: "ui", Organization: []string{"acme"}}, NotAfter: time.Now().Add(-time.Second)}})
	wantRefused(t, "expired during the connection", i, err)
}

// TestOpenSEC1: only a node that is open takes callers without credentials; a wrong credential is
// refused there too.
func TestOpenSEC1(t *testing.T) {
	t.Parallel()
	a, err := New(t.Context(), Options{Open: true})
	if err != nil {
		t.Fatal(err)
	}
	if i, err := a.Authenticate(t.Context(), Credentials{}); i != Local || err != nil || i.Authenticated() != (contract.Author{}) {
		t.Errorf("%+v, %v", i, err)
	}
	i, err := a.withBearer(t, "wrong")
	wantRefused(t, "a wrong token on an open node", i, err)
}

// TestConfigFaults lists configurations that are refused, and what the operator learns.
func TestConfigFaults(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"oidc: [{issuer: 'https://x', audienc: a}]":                                                 "audienc",
		"oidc: [{issuer: 'http://x.example', audience: a}]":                                         "must begin with https://",
		"oidc: [{issuer: 'x', audience: a}]":                                                        "no URL",
		"oidc: [{issuer: 'https://x'}]":                                                             "audience: is required",
		"oidc: [{issuer: 'https://x', audience: a, algorithms: [HS256]}]":                           `"HS256" is not one of`,
		"oidc: [{issuer: 'https://x', audience: a, algorithms: [none]}]":                            `"none" is not one of`,
		"oidc: [{issuer: 'https://x', audience: a, skew: 1h}]":                                      "not between",
		"oidc: [{issuer: 'https://x', audience: a, roles: {ops: [king]}}]":                          `"king" is no role`,
		"oidc: [{issuer: 'https://x', audience: a}, {issuer: 'https://x', audience: b}]":            "appears twice",
		"certificates: [{subject: '', tenants: [a], roles: [reader]}]":                              "no subject",
		"certificates: [{subject: 'CN', tenants: [a], roles: [reader]}]":                            "no subject",
		"certificates: [{subject: 'CN=a', tenants: [a], roles: [attester], actFor: [a, '']}]":       "actFor[1]: is required",
		"certificates: [{subject: 'CN=a', tenants: [a], roles: [attester], actFor: [' a']}]":        "begins with the white space",
		"certificates: [{subject: 'CN=a', tenants: [a], roles: [attester], actFor: [\"a\\tb\"]}]":   "control character",
		"certificates: [{subject: 'CN=a', tenants: [a], roles: [attester], actFor: ['*', a]}]":      "beside others",
		"certificates: [{subject: 'CN=a', tenants: [a], roles: [attester], actFor: ['token:a b']}]": "the name of no token",
		"certificates: [{subject: 'CN=a', tenants: [a], roles: [attester], actFor: [local]}]":       "without access control",
		"certificates: [{subject: 'CN=a', roles: [reader]}]":                                        "tenants: is empty",
		"certificates: [{subject: 'CN=a', tenants: [''], roles: [reader]}]":                         `"" is no tenant: it is blank`,
		"certificates: [{subject: 'CN=a', tenants: [a, \"b\\n\"], roles: [reader]}]":                "no tenant",
		"oidc: [{issuer: 'https://x', audience: a, tenants: {team: ['']}}]":                         `tenants.team: "" is no tenant`,
		"certificates: [{subject: 'CN=a', tenants: [a]}]":                                           "names no role",
		"oidc: []\n---\noidc: [{issuer: 'https://x', audience: a}]":                                 "more than one document",
		"oidc: [{issuer: 'https://x', audience: ' '}]":                                              `audience: " " is blank`,
		"oidc: [{issuer: 'https://x', audience: \"\\u00a0\"}]":                                      "is blank",
		"oidc: [{issuer: 'https://x', audience: 'a '}]":                                             `audience: "a " begins or ends with white space; remove it`,
		"oidc: [{issuer: ' ', audience: a}]":                                                        "issuer: \" \" is no URL",
		"oidc: [{issuer: 'https://x/a ', audience: a}]":                                             "issuer: \"https://x/a \" begins or ends with white space",
		"oidc: [{issuer: 'https://x', audience: a, nameClaim: ' '}]":                                `nameClaim: " " is blank`,
		"oidc: [{issuer: 'https://x', audience: a, tenantsClaim: \"\\t\"}]":                         "tenantsClaim: \"\\t\" is blank",
		"oidc: [{issuer: 'https://x', audience: a, rolesClaim: ' groups'}]":                         "rolesClaim: \" groups\" begins or ends",
		"oidc: [{issuer: 'https://x', audience: a, tenants: {' ': [a]}}]":                           `tenants: the value " " is blank`,
		"oidc: [{issuer: 'https://x', audience: a, tenants: {a: [' ']}}]":                           "is no tenant",
		"oidc: [{issuer: 'https://x', audience: a, roles: {'': [reader]}}]":                         `roles: the value "" is blank`,
		"oidc: [{issuer: 'https://x', audience: a, roles: {ops: [' ']}}]":                           `" " is no role`,
		"oidc: [{issuer: 'https://x', audience: a, algorithms: [' ']}]":                             `" " is not one of`,
		"certificates: [{subject: ' ', tenants: [a], roles: [reader]}]":                             "no subject",
		"certificates: [{subject: 'CN= ', tenants: [a], roles: [reader]}]":                          "no subject",
		"certificates: [{subject: ' =a', tenants: [a], roles: [reader]}]":                           "no subject",
		"certificates: [{subject: 'CN=a', tenants: [' '], roles: [reader]}]":                        "no tenant",
		"oidc: 7": "cannot unmarshal",
		"- x":     "cannot unmarshal",
	} {
		if _, err := ParseConfig([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
	if c, err := ParseConfig(nil); err != nil || len(c.OIDC) > 0 {
		t.Errorf("an empty file: %+v, %v", c, err)
	}
}
