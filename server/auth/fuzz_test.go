package auth

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// wantReason requires that a refusal is one for the caller, and shows it nothing of what it sent.
func wantReason(t *testing.T, err error) {
	t.Helper()
	var e *contract.Error
	if !errors.As(err, &e) || e.Reason != contract.ReasonUnauthenticated || !slices.Contains([]error{errMissing, errTwice, errScheme, errRefused, errProvider}, err) &&
		!strings.HasPrefix(e.Message, "the token has no name: ") {
		t.Fatalf("refused with %v", err)
	}
}

// FuzzAuthorization presents any values of the header, one a line, in which API and JWT stand for
// two issued tokens. One value with the scheme and an issued token has its identity; nothing else
// has any (SEC-2).
func FuzzAuthorization(f *testing.F) {
	api, hash := NewToken()
	p := newIssuer(f)
	access := p.token(nil)
	stored := &Token{ID: "1", Name: "ci", Tenants: TenantsOf("acme"), Roles: RolesOf(runlogv1.Role_READER)}
	a, err := New(f.Context(), Options{
		Config: Config{OIDC: []OIDC{{Issuer: p.URL, Audience: "runlog"}}},
		Token: func(_ context.Context, h TokenHash) (*Token, error) {
			if h == hash {
				return stored, nil
			}
			return nil, nil
		},
	})
	if err != nil {
		f.Fatal(err)
	}
	for _, header := range []string{"Bearer API", "bearer  JWT ", "Bearer API\nBearer API", "Bearer API, Bearer API", "Basic API", "API", "Bearer", "Bearer rlk_API"} {
		f.Add(header)
	}
	f.Fuzz(func(t *testing.T, header string) {
		values := strings.Split(strings.NewReplacer("API", api, "JWT", access).Replace(header), "\n")
		i, err := a.Authenticate(t.Context(), Credentials{Authorization: values})
		scheme, text, _ := strings.Cut(values[0], " ")
		text = strings.TrimSpace(text)
		issued := len(values) == 1 && strings.EqualFold(scheme, "Bearer")
		switch {
		case issued && text == api:
			if err != nil || i.Name != "token:ci" || i.TokenID != "1" {
				t.Fatalf("%q: %+v, %v", header, i, err)
			}
		case issued && text == access:
			if err != nil || i.Name != "oidc:"+p.URL+"#worker-1" {
				t.Fatalf("%q: %+v, %v", header, i, err)
			}
		case i != nil:
			t.Fatalf("%q is %+v", header, i)
		default:
			wantReason(t, err)
		}
	})
}

// FuzzAccessToken signs any head and claims, in which ISSUER is that of the provider, with the key
// of the provider, with another one, or with the public key as a secret. A token is accepted only
// with the right signature, issuer, audience and times, and grants no more than its claims say
// (SEC-2).
func FuzzAccessToken(f *testing.F) {
	p := newIssuer(f)
	a := accepting(f, p)
	key := p.key.Load().Key.(*ecdsa.PrivateKey)
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	const head = `{"alg":"ES256","kid":"k1"}`
	const good = `{"iss":"ISSUER","aud":"runlog","sub":"x","exp":9999999999,"tenants":["acme"],"roles":["reader"]}`
	for _, claims := range []string{
		good, strings.Replace(good, `"runlog"`, `["other","runlog"]`, 1), strings.Replace(good, "9999999999", "1", 1),
		strings.Replace(good, `"sub"`, `"nbf":9999999990,"sub"`, 1), strings.Replace(good, `"acme"`, `"*"`, 1), `{"iss":"ISSUER"}`, "null", "",
	} {
		for signature := range uint8(4) {
			f.Add(head, claims, signature)
		}
	}
	f.Add(`{"alg":"none"}`, good, uint8(3))
	f.Add(`{"alg":"HS256","kid":"k1"}`, good, uint8(2))
	f.Add(`{"alg":"ES256","kid":"k1","crit":["x"]}`, good, uint8(0))
	f.Add(`{"alg":"ES256","jwk":{"kty":"oct","k":"AAAA"}}`, good, uint8(0))
	f.Fuzz(func(t *testing.T, head, claims string, signature uint8) {
		claims = strings.ReplaceAll(claims, "ISSUER", p.URL)
		raw := base64.RawURLEncoding
		signed := raw.EncodeToString([]byte(head)) + "." + raw.EncodeToString([]byte(claims))
		text := signed + "." + raw.EncodeToString(signatureOf(t, signature%4, signed, key, stranger))
		i, err := a.withBearer(t, text)
		if err != nil {
			if wantReason(t, err); i != nil {
				t.Fatalf("refused, and %+v", i)
			}
			return
		}
		var standard struct {
			Issuer   string      `json:"iss"`
			Audience any         `json:"aud"`
			Expiry   json.Number `json:"exp"`
		}
		var said map[string]any
		if err := errors.Join(json.Unmarshal([]byte(claims), &standard), json.Unmarshal([]byte(claims), &said)); err != nil {
			t.Fatalf("accepted %s: %v", claims, err)
		}
		end, err := standard.Expiry.Float64()
		begin, _ := said["nbf"].(float64)
		now := float64(time.Now().Unix())
		if signature%4 != 0 || err != nil || standard.Issuer != p.URL || !slices.Contains(append(texts(standard.Audience), ""), "runlog") ||
			now > end+defaultSkew.Seconds() || now < begin-defaultSkew.Seconds() {
			t.Fatalf("accepted %s %s with signature %d", head, claims, signature%4)
		}
		if name, ok := said["sub"].(string); !ok || i.Name != "oidc:"+p.URL+"#"+name || i.Tenants.All || i.TokenID != "" {
			t.Fatalf("%s is %+v", claims, i)
		}
		for _, r := range i.Roles.List() {
			if !slices.ContainsFunc(texts(said["roles"]), func(text string) bool { return strings.EqualFold(text, r.String()) }) {
				t.Fatalf("%s has role %s", claims, r)
			}
		}
	})
}

// signatureOf signs with the provider's key (0), with the key of a stranger (1), with the public
// key as a secret (2), or not at all (3).
func signatureOf(t *testing.T, how uint8, text string, key, stranger *ecdsa.PrivateKey) (signature []byte) {
	t.Helper()
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	switch how {
	case 0:
		signature, err = jwt.SigningMethodES256.Sign(text, key)
	case 1:
		signature, err = jwt.SigningMethodES256.Sign(text, stranger)
	case 2:
		signature, err = jwt.SigningMethodHS256.Sign(text, public)
	}
	if err != nil {
		t.Fatal(err)
	}
	return signature
}

// FuzzPassport verifies any passport: as it is, and with the right code of any fields, which
// another member could make. It is good for an identity only if the code is right and it names the
// node that sends it; made again, it says the same (SEC-3).
func FuzzPassport(f *testing.F) {
	secret := bytes.Repeat([]byte{7}, 32)
	p := Passports{Secret: func(number uint64) ([]byte, uint64, bool) { return secret, 3, number == 0 || number == 3 }}
	for _, i := range []*Identity{Local, {Name: "token:ci", Tenants: TenantsOf("a", "b"), Roles: AllRoles, TokenID: "1", Until: time.Unix(9999999999, 0)}, {}} {
		text, err := p.Make(i, "node-1")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, false)
		f.Add(text[passportHead:], true)
		f.Add(text[:passportHead], false)
	}
	f.Fuzz(func(t *testing.T, text []byte, seal bool) {
		if seal {
			text = append(binary.BigEndian.AppendUint64(nil, 3), append(make([]byte, sha256.Size), text...)...)
			code, err := passportCode(secret, text)
			if err != nil {
				t.Fatal(err)
			}
			copy(text[8:], code)
		}
		i, err := p.Verify(text, "node-1")
		if err != nil {
			if i != nil {
				t.Fatalf("refused, and %+v", i)
			}
			return
		}
		code, wrong := passportCode(secret, text)
		if wrong != nil || !hmac.Equal(code, text[8:passportHead]) {
			t.Fatalf("%x was not made by a member, and is %+v", text, i)
		}
		if other, err := p.Verify(text, "node-2"); other != nil || err == nil {
			t.Fatalf("another node uses it: %+v", other)
		}
		again, err := p.Make(i, "node-1")
		if err != nil {
			t.Fatal(err)
		}
		if back, err := p.Verify(again, "node-1"); err != nil || !reflect.DeepEqual(back, i) {
			t.Fatalf("%+v came back as %+v, %v", i, back, err)
		}
	})
}
