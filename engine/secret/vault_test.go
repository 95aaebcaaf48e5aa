package secret

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"runlog/client/transport/certfile"
)

// vaultTo returns a Vault whose token is in a file.
func vaultTo(t *testing.T, address string, change func(*VaultOptions)) *Vault {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "token", "hvs.token-of-the-worker\n")
	o := VaultOptions{Address: address, Namespace: "team-a", TokenFile: filepath.Join(dir, "token"), Timeout: 5 * time.Second, Own: true}
	if change != nil {
		change(&o)
	}
	v, err := NewVault(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	return v
}

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

const vaultAnswer = `{"request_id":"x","data":{"data":{"password":"` + hunter + `","user":"admin-of-db","port":5432,"none":null},"metadata":{"version":3}}}`

// TestVaultENG7 reads each path once, with the token and the namespace.
func TestVaultENG7(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		if r.Method != http.MethodGet || r.URL.Path != "/v1/kv/data/team/db" || r.Header.Get("X-Vault-Namespace") != "team-a" ||
			r.Header.Get("X-Vault-Token") != "hvs.token-of-the-worker" {
			t.Errorf("got %s %s with %v", r.Method, r.URL, r.Header)
		}
		io.WriteString(w, vaultAnswer)
	})
	v := vaultTo(t, server.URL+"/", nil)
	set, err := v.Resolve(t.Context(), []string{"vault:kv/team/db#password", "vault:kv/team/db#user"}, scope)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := set.Get("vault:kv/team/db#password")
	user, _ := set.Get("vault:kv/team/db#user")
	if password.Reveal() != hunter || user.Reveal() != "admin-of-db" || calls.Load() != 1 {
		t.Errorf("got %q, %q with %d calls", password.Reveal(), user.Reveal(), calls.Load())
	}
	wantError(t, v, "vault:kv/team/db#port", ErrValue, "is no text", "5432")
	wantError(t, v, "vault:kv/team/db#none", ErrValue, "fewer than 4 bytes")
	wantError(t, v, "vault:kv/team/db#nothing", ErrNotFound, "no such field")
	for _, ref := range []string{"vault:kv#a", "vault:kv/db", "vault:/db#a", "vault:kv/../sys#a", "vault:kv/a b#a", "vault:kv/a?b#a", "vault:kv/db#", "vault:kv/a%2e#x"} {
		wantError(t, v, ref, ErrReference, "write vault:MOUNT/PATH#FIELD")
	}
}

// TestVaultScopeENG7 puts the tenant and the environment before the path.
func TestVaultScopeENG7(t *testing.T) {
	t.Parallel()
	var path atomic.Value
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		path.Store(r.URL.Path)
		io.WriteString(w, vaultAnswer)
	})
	v := vaultTo(t, server.URL, func(o *VaultOptions) { o.Own = false })
	for _, tt := range []struct {
		scope Scope
		want  string
	}{
		{scope, "/v1/kv/data/acme/prod/db"}, {Scope{"..", "a/b"}, "/v1/kv/data/%2E./a%2Fb/db"}, {Scope{"a?b#c", "%"}, "/v1/kv/data/a%3Fb%23c/%25/db"},
	} {
		if _, err := v.Resolve(t.Context(), []string{"vault:kv/db#password"}, tt.scope); err != nil || path.Load() != tt.want {
			t.Errorf("want %s, got %s, %v", tt.want, path.Load(), err)
		}
	}
	if _, err := v.Resolve(t.Context(), []string{"vault:kv/db#password"}, Scope{}); !errors.Is(err, ErrDenied) {
		t.Errorf("want ErrDenied, got %v", err)
	}
}

// TestVaultRefusalsENG7: errors have the status and nothing of the answer.
func TestVaultRefusalsENG7(t *testing.T) {
	t.Parallel()
	for status, reason := range map[int]error{
		400: ErrReference, 401: ErrDenied, 403: ErrDenied, 404: ErrNotFound, 405: ErrReference, 429: ErrUnavailable,
		472: ErrUnavailable, 500: ErrUnavailable, 503: ErrUnavailable, 204: ErrReference,
	} {
		server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			io.WriteString(w, `{"errors":["`+hunter+`"]}`)
		})
		wantError(t, vaultTo(t, server.URL, nil), "vault:kv/db#password", reason, "secret vault:kv/db#password")
	}
}

// TestVaultHostileENG7: no answer fills memory, holds up the caller, or gets the token elsewhere.
func TestVaultHostileENG7(t *testing.T) {
	t.Parallel()
	thief := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("another server has got %v", r.Header)
	})
	const ref = "vault:kv/db#password"
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		reason error
	}{
		"no JSON":    {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, hunter) }, ErrValue},
		"other JSON": {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"data":{"password":"`+hunter+`"}}`) }, ErrValue},
		"version 1":  {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"data":{"data":"`+hunter+`"}}`) }, ErrValue},
		"deep":       {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, strings.Repeat("[", 1<<19)) }, ErrValue},
		"elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, thief.URL+r.URL.Path, http.StatusTemporaryRedirect)
		}, ErrDenied},
		"to another port": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		}, ErrDenied},
		"to itself": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
		}, ErrDenied},
		"cut": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			io.WriteString(w, vaultAnswer)
		}, ErrUnavailable},
		"endless": {func(w http.ResponseWriter, r *http.Request) {
			for chunk := strings.Repeat(" ", 64<<10); r.Context().Err() == nil; {
				if _, err := io.WriteString(w, chunk); err != nil {
					return
				}
			}
		}, ErrValue},
		"aborts": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantError(t, vaultTo(t, serve(t, tt.answer).URL, nil), ref, tt.reason, "secret "+ref, "hvs.")
		})
	}
	t.Run("silent", func(t *testing.T) {
		t.Parallel()
		server := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		wantError(t, vaultTo(t, server.URL, func(o *VaultOptions) { o.Timeout = 50 * time.Millisecond }), ref, ErrUnavailable, "cannot reach Vault")
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := vaultTo(t, server.URL, nil).Resolve(ctx, []string{ref}, scope); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("want the context's error, got %v", err)
		}
	})
	t.Run("gone", func(t *testing.T) {
		t.Parallel()
		server := serve(t, nil)
		server.Close()
		wantError(t, vaultTo(t, server.URL, nil), ref, ErrUnavailable, "cannot reach Vault")
	})
}

// TestVaultTokenENG7 reads the token again for each request, and repeats none in errors.
func TestVaultTokenENG7(t *testing.T) {
	t.Parallel()
	var token atomic.Value
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		token.Store(r.Header.Get("X-Vault-Token"))
		io.WriteString(w, vaultAnswer)
	})
	dir := t.TempDir()
	v := vaultTo(t, server.URL, func(o *VaultOptions) { o.TokenFile = filepath.Join(dir, "token") })
	const ref = "vault:kv/db#password"
	wantError(t, v, ref, ErrUnavailable, "check TokenFile", dir)
	for _, want := range []string{"first-token", "second-token"} {
		write(t, dir, "token", want+"\n")
		wantValue(t, v, ref, hunter)
		if token.Load() != want {
			t.Errorf("want %s, got %s", want, token.Load())
		}
	}
	for _, bad := range []string{"", "\n", hunter + "\nX-Header: x", strings.Repeat(hunter, 1000), "tökên"} {
		write(t, dir, "token", bad)
		wantError(t, v, ref, ErrUnavailable, "empty or malformed")
	}
	wantValue(t, vaultTo(t, server.URL, func(o *VaultOptions) {
		o.TokenFile, o.Token = "", func() string { return "from-the-environment" }
	}), ref, hunter)
	if token.Load() != "from-the-environment" {
		t.Errorf("got %s", token.Load())
	}
}

// TestVaultAuthoritiesENG7: a worker that stays up trusts the authorities that are in their file,
// at the next request after the file was replaced. It trusts the earlier ones no more, also on a
// connection that it has. A file that cannot be read leaves them in place.
func TestVaultAuthoritiesENG7(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, vaultAnswer) }))
	t.Cleanup(server.Close)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	dir, now := t.TempDir(), time.Unix(1000, 0)
	file := filepath.Join(dir, "ca.crt")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, NotAfter: time.Now().Add(time.Hour)}
	other, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	replace := func(text []byte) {
		write(t, dir, "next", string(text))
		if err := os.Rename(filepath.Join(dir, "next"), file); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Hour)
	}
	encode := func(der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}) }
	replace(encode(other))
	files, err := certfile.Load(certfile.Options[tls.Config]{Paths: []string{file}, Clock: func() time.Time { return now }, Read: func(*tls.Config) (*tls.Config, error) {
		text, err := os.ReadFile(file)
		roots := x509.NewCertPool()
		if err == nil && !roots.AppendCertsFromPEM(text) {
			err = errors.New("no certificate")
		}
		return &tls.Config{RootCAs: roots}, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	v := vaultTo(t, server.URL, func(o *VaultOptions) { o.TLSFiles = files })
	const ref = "vault:kv/team/db#password"
	wantError(t, v, ref, ErrUnavailable, "unknown authority")
	replace(encode(server.Certificate().Raw))
	wantValue(t, v, ref, hunter)
	replace([]byte("half a cert"))
	wantValue(t, v, ref, hunter)
	replace(encode(other))
	wantError(t, v, ref, ErrUnavailable, "unknown authority")
}

func TestNewVaultRefusesENG7(t *testing.T) {
	t.Parallel()
	token := func() string { return "t" }
	for _, o := range []VaultOptions{
		{Address: "", Token: token}, {Address: "vault:8200", Token: token}, {Address: "ftp://vault", Token: token},
		{Address: "https://user:" + hunter + "@vault", Token: token}, {Address: "https://vault?x", Token: token},
		{Address: "http://vault:8200", Token: token}, {Address: "https://vault"}, {Address: "http://10.0.0.1", Token: token},
	} {
		if _, err := NewVault(o); err == nil || strings.Contains(err.Error(), hunter) {
			t.Errorf("%s: got %v", o.Address, err)
		}
	}
	for _, o := range []VaultOptions{
		{Address: "https://vault", Token: token}, {Address: "http://vault", Token: token, AllowHTTP: true},
		{Address: "http://127.0.0.1:8200", Token: token}, {Address: "http://[::1]:8200", Token: token}, {Address: "http://localhost", Token: token},
	} {
		if _, err := NewVault(o); err != nil {
			t.Errorf("%s: %v", o.Address, err)
		}
	}
}
