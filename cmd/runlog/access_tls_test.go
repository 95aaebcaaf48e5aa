package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"runlog/client/command/output"
	"runlog/server/auth"
)

// certificates issues certificates of one authority into a directory.
type certificates struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newCertificates makes an authority, in the file name.crt.
func newCertificates(t *testing.T, dir, name string) *certificates {
	t.Helper()
	a := &certificates{t: t, dir: dir}
	a.cert, a.key = a.issue(name, x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// path returns the path of a file in the directory.
func (a *certificates) path(file string) string { return filepath.Join(a.dir, file) }

// issue writes name.crt and name.key.
func (a *certificates) issue(name string, template x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = &template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{name + ".crt": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(a.path(file), pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

// secretFile writes a file for its owner alone.
func (a *certificates) secretFile(name, text string) {
	a.t.Helper()
	if err := os.WriteFile(a.path(name), []byte(text), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// server issues the certificate of a node on loopback.
func (a *certificates) server(name string) {
	a.t.Helper()
	a.issue(name, x509.Certificate{Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
}

// client issues the certificate of a client.
func (a *certificates) client(name string) {
	a.t.Helper()
	a.issue(name, x509.Certificate{Subject: pkix.Name{CommonName: name, Organization: []string{"acme"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
}

const engineAccess = `certificates:
  - subject: CN=engine-*,O=acme
    tenants: [acme]
    roles: [producer, reader]
`

// secureNode starts a node with TLS and authentication, with its files in a directory.
func secureNode(t *testing.T, a *certificates) *nodeProcess {
	t.Helper()
	a.server("tls")
	a.secretFile("access.yaml", engineAccess)
	return spawnNode(t, a.path("data"), "RUNLOG_TLS_CERT="+a.path("tls.crt"), "RUNLOG_TLS_KEY="+a.path("tls.key"), "RUNLOG_TLS_CLIENT_CA="+a.path("ca.crt"),
		"RUNLOG_ACCESS_CONFIG="+a.path("access.yaml"), "RUNLOG_ADMIN_TOKEN_FILE="+a.path("admin.token"))
}

// commandLine runs command lines in this process with an environment.
type commandLine struct {
	t   *testing.T
	env map[string]string
}

// do wants an exit code, and each of the texts in what is printed. No token may be on stderr.
func (c commandLine) do(want output.ExitCode, says string, args ...string) string {
	c.t.Helper()
	var out, errs bytes.Buffer
	s := testSession(&out, &errs)
	s.Getenv = func(name string) string { return c.env[name] }
	code := run(context.Background(), s, append([]string{"--timeout", "20s"}, args...))
	if text := out.String() + errs.String(); code != want || !strings.Contains(text, says) {
		c.t.Errorf("%v: exit %d, %s; want %d and %q", args, code, text, want, says)
	}
	if strings.Contains(errs.String(), auth.TokenPrefix) {
		c.t.Errorf("%v: a token on stderr: %s", args, errs.String())
	}
	return out.String()
}

// TestCommandsOverTLSSEC1: contexts, tokens and client certificates work over a TLS listener. What
// does not fit it is refused with the flag that repairs it: another authority, plain text, no
// credentials, a revoked token, and a role that is missing (SEC-2, SEC-4).
func TestCommandsOverTLSSEC1(t *testing.T) {
	t.Parallel()
	a := newCertificates(t, t.TempDir(), "ca")
	n := secureNode(t, a)
	a.client("engine-1")
	a.client("other")
	other := newCertificates(t, a.dir, "other-ca")
	other.client("engine-2")
	address := n.ready(t).GRPC
	c := commandLine{t, map[string]string{"HOME": a.dir}}
	tls := []string{"--server", "https://" + address, "--cacert", a.path("ca.crt")}
	c.do(output.ExitOK, "root is stored", "context", "add", "root", "--server", "https://"+address, "--cacert", a.path("ca.crt"), "--token-file", a.path("admin.token"))
	c.do(output.ExitOK, "token:admin-token-file", "whoami")
	created := c.do(output.ExitOK, "", "token", "create", "ci", "--tenant", "acme", "--role", "producer")
	token, _, _ := strings.Cut(created, "\n")
	c.do(output.ExitOK, "ci is stored", "context", "add", "ci", "--server", "https://"+address, "--cacert", a.path("ca.crt"), "--token", token)
	c.do(output.ExitOK, "ci is in use", "context", "use", "ci")
	c.do(output.ExitOK, "token:ci", "whoami")
	c.do(output.ExitOK, "", "append", "-f", filepath.Join("testdata", "run-1.jsonl"))
	c.do(output.ExitForbidden, "\"runlog whoami\" shows your roles and tenants", "token", "list")
	c.do(output.ExitForbidden, "with the right credentials, run the same command again", append(tls, "--cert", a.path("other.crt"), "--cert-key", a.path("other.key"), "append", "-f", filepath.Join("testdata", "run-1.jsonl"))...)

	engine := append(slices.Clone(tls), "--cert", a.path("engine-1.crt"), "--cert-key", a.path("engine-1.key"))
	c.do(output.ExitOK, "cert:", append(engine, "whoami")...) // Not with the token of the context.
	current := c
	c = commandLine{t, map[string]string{"HOME": t.TempDir()}}
	c.do(output.ExitOK, "StepStarted", append(engine, "events", "run-1")...)
	c.do(output.ExitForbidden, "UNAUTHENTICATED", append(tls, "--cert", a.path("other.crt"), "--cert-key", a.path("other.key"), "whoami")...)
	c.do(output.ExitForbidden, "--cert, of an authority that the node trusts", append(tls, "--cert", a.path("engine-2.crt"), "--cert-key", a.path("engine-2.key"), "whoami")...)
	for _, hint := range []string{"--token-file", "RUNLOG_TOKEN", "a context (runlog context add)"} {
		c.do(output.ExitForbidden, hint, append(tls, "whoami")...)
	}
	c.do(output.ExitUnavailable, "--cacert", "--server", "https://"+address, "--cacert", a.path("other-ca.crt"), "whoami")
	c.do(output.ExitUnavailable, "--cacert", "--server", "https://"+address, "whoami")
	c.do(output.ExitUnavailable, "https://", "--server", address, "whoami")
	c = current
	id := strings.Fields(strings.Split(c.do(output.ExitOK, "ci", "--context", "root", "token", "list"), "\n")[1])[0]
	c.do(output.ExitOK, "", "--context", "root", "token", "revoke", id)
	c.do(output.ExitForbidden, "UNAUTHENTICATED", "whoami")

	plain := spawnNode(t, filepath.Join(a.dir, "plain"))
	c.do(output.ExitUnavailable, "leave out --tls and https://", "--server", "https://"+plain.ready(t).GRPC, "whoami")
}

// TestTwoTokens: two tokens from one place are refused; a flag wins over both the environment's and
// the context's. RUNLOG_INSECURE is the node's and lets no token leave the machine (SEC-1).
func TestTwoTokens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	admin := filepath.Join(dir, "admin.token")
	n := spawnNode(t, filepath.Join(dir, "data"), "RUNLOG_ADMIN_TOKEN_FILE="+admin)
	at := []string{"--server", n.ready(t).GRPC}
	if log := n.stderr.String(); !strings.Contains(log, "made a new admin token") || !strings.Contains(log, admin) {
		t.Errorf("the log does not tell of the new file:\n%s", log)
	}
	token, _ := auth.NewToken()
	c := commandLine{t, map[string]string{"HOME": dir, "RUNLOG_TOKEN": token, "RUNLOG_TOKEN_FILE": admin}}
	c.do(output.ExitUsage, "RUNLOG_TOKEN and RUNLOG_TOKEN_FILE exclude each other", append(at, "whoami")...)
	c.do(output.ExitOK, "token:admin-token-file", append(at, "--token-file", admin, "whoami")...)
	both := append(slices.Clone(at), "--token-file", admin, "--token", token)
	c.do(output.ExitUsage, "--token and --token-file exclude each other", append(both, "whoami")...)
	c.do(output.ExitUsage, "--token and --token-file exclude each other", append(both, "context", "add", "x")...)
	delete(c.env, "RUNLOG_TOKEN")
	c.do(output.ExitForbidden, "UNAUTHENTICATED", append(at, "--token", token, "whoami")...)
	c.env["RUNLOG_INSECURE"] = "true"
	c.do(output.ExitUsage, "plain text", "--server", "runlog.example.com", "whoami")

	again := spawnNode(t, filepath.Join(dir, "other"), "RUNLOG_ADMIN_TOKEN_FILE="+admin)
	again.ready(t)
	if log := again.stderr.String(); strings.Contains(log, "made a new admin token") {
		t.Errorf("a node tells of a token that it has not made:\n%s", log)
	}
	if code, text := serveFailure(t, nil, "--data-dir", filepath.Join(dir, "third"), "--admin-token-file", filepath.Join(dir, "none", "token")); code != int(output.ExitUsage) ||
		!strings.Contains(text, "a directory that exists") {
		t.Errorf("exit %d, %s", code, text)
	}
	// A start that fails leaves no token behind.
	unmade := filepath.Join(dir, "unmade.token")
	if code, text := serveFailure(t, nil, "--data-dir", filepath.Join(dir, "fourth"), "--admin-token-file", unmade, "--tls-cert", admin, "--tls-key", admin); code != int(output.ExitUsage) ||
		!strings.Contains(text, "name PEM files of a certificate and its key") {
		t.Errorf("exit %d, %s", code, text)
	}
	if _, err := os.Stat(unmade); !os.IsNotExist(err) {
		t.Errorf("a start without a certificate left a token: %v", err)
	}
}
