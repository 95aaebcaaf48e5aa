package workerflags_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"runlog/engine/secret"
	"runlog/engine/workerflags"
)

// build returns what flags say at a worker with some variables. Of a variable that is not among
// them, the worker has its name in small letters.
func build(t *testing.T, o workerflags.Options, args ...string) (workerflags.Worker, error) {
	t.Helper()
	var f workerflags.Flags
	set := flag.NewFlagSet("", flag.ContinueOnError)
	f.Register(set)
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	if o.Getenv == nil {
		o.Getenv = func(name string) string {
			if strings.HasPrefix(name, "VAULT_") {
				return ""
			}
			return "the variable " + strings.ToLower(name)
		}
	}
	return f.Build(o)
}

// TestSecretsOfTenantsENG7: a run gets the secrets of its own tenant and environment, whatever
// reference its plan has. Other tenants get none, and neither does a plan get those of the worker.
func TestSecretsOfTenantsENG7(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"acme/prod/db", "rival/prod/db", "acme/test/db", "prod/db", "db"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("the file "+name), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	both := []string{"--secrets-dir", dir, "--secret-env", "acme=SECRET_ACME_", "--secret-env", "rival=SECRET_RIVAL_"}
	for _, tt := range []struct {
		name  string
		o     workerflags.Options
		args  []string
		scope secret.Scope
		want  map[string]string // by reference; the other ones are refused
	}{
		{"acme", workerflags.Options{Environment: "prod"}, both, secret.Scope{TenantID: "acme", EnvironmentID: "prod"},
			map[string]string{"env:DB": "the variable secret_acme_db", "file:db": "the file acme/prod/db",
				"env:SECRET_RIVAL_DB": "the variable secret_acme_secret_rival_db", "env:RIVAL_DB": "the variable secret_acme_rival_db",
				"env:AWS_SECRET_ACCESS_KEY": "the variable secret_acme_aws_secret_access_key"}},
		{"another environment", workerflags.Options{Environment: "prod"}, both, secret.Scope{TenantID: "acme", EnvironmentID: "test"},
			map[string]string{"file:db": "the file acme/test/db"}},
		{"an unknown tenant", workerflags.Options{Environment: "prod"}, both, secret.Scope{TenantID: "mallory", EnvironmentID: "prod"}, nil},
		{"a tenant named like a path", workerflags.Options{Environment: "prod"}, both, secret.Scope{TenantID: "../rival", EnvironmentID: "prod"}, nil},
		{"no tenant", workerflags.Options{Environment: "prod"}, both, secret.Scope{EnvironmentID: "prod"}, nil},
		{"no prefix", workerflags.Options{Environment: "prod"}, nil, secret.Scope{TenantID: "acme", EnvironmentID: "prod"}, nil},
		{"the worker's tenant", workerflags.Options{Tenant: "acme", Environment: "prod"}, nil, secret.Scope{TenantID: "acme", EnvironmentID: "prod"},
			map[string]string{"env:DB": "the variable secret_acme_db", "env:SECRET_RIVAL_DB": "the variable secret_acme_secret_rival_db",
				"env:RIVAL_DB": "the variable secret_acme_rival_db", "env:AWS_SECRET_ACCESS_KEY": "the variable secret_acme_aws_secret_access_key"}},
		{"not the worker's tenant", workerflags.Options{Tenant: "acme", Environment: "prod"}, nil, secret.Scope{TenantID: "rival", EnvironmentID: "prod"}, nil},
	} {
		w, err := build(t, tt.o, tt.args...)
		if err != nil {
			t.Fatal(tt.name, err)
		}
		for _, ref := range []string{"env:DB", "env:SECRET_RIVAL_DB", "env:RIVAL_DB", "env:AWS_SECRET_ACCESS_KEY", "env:../DB", "file:db", "file:../../rival/prod/db",
			"file:/etc/passwd", "file:../../db", "vault:kv/db#password", "RIVAL_DB", "{{env:DB}}"} {
			got := "refused"
			if set, err := w.Secrets.Resolve(t.Context(), []string{ref}, tt.scope); err == nil {
				value, err := set.Get(ref)
				got = fmt.Sprint(value.Reveal(), err)
			}
			want := "refused"
			if value, ok := tt.want[ref]; ok {
				want = fmt.Sprint(value, error(nil))
			}
			if got != want {
				t.Errorf("%s: %s: want %q, got %q", tt.name, ref, want, got)
			}
		}
	}
}

// TestPrefixesOfTenantsENG7: a worker that has a tenant alone gives its plans the variables with
// the prefix of this tenant. No two tenants share a variable, whatever they are called: neither
// prefix begins with the other one, and so no rest of a name makes them equal.
func TestPrefixesOfTenantsENG7(t *testing.T) {
	t.Parallel()
	prefix := func(t interface{ Fatal(args ...any) }, tenant string) string {
		read := ""
		w, err := new(workerflags.Flags).Build(workerflags.Options{Tenant: tenant, Environment: "prod", Getenv: func(name string) string {
			if strings.HasPrefix(name, "VAULT_") {
				return ""
			}
			read = name
			return "the value"
		}})
		if err == nil {
			_, err = w.Secrets.Resolve(context.Background(), []string{"env:DB"}, secret.Scope{TenantID: tenant, EnvironmentID: "prod"})
		}
		if err != nil || !strings.HasPrefix(read, "SECRET_") || !strings.HasSuffix(read, "_DB") {
			t.Fatal(tenant, read, err)
		}
		return strings.TrimSuffix(read, "DB")
	}
	for tenant, want := range map[string]string{
		"acme": "SECRET_ACME_", "acme2": "SECRET_ACME2_", "acme-eu": "SECRET_ACMEx2dEU_", "acme_eu": "SECRET_ACMEx5fEU_", "Acme": "SECRET_x41CME_", "x": "SECRET_X_",
	} {
		if got := prefix(t, tenant); got != want {
			t.Fatalf("tenant %s has %s, want %s", tenant, got, want)
		}
	}
	name := rapid.StringMatching(`[aAxX2d_.é-]{1,6}`)
	rapid.Check(t, func(t *rapid.T) {
		one, two := name.Draw(t, "one"), name.Draw(t, "two")
		if a, b := prefix(t, one), prefix(t, two); one != two && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a)) {
			t.Fatalf("the variables of tenant %q begin with %s, and those of %q with %s", one, a, two, b)
		}
	})
}

// TestFaultsENG7: an error of the flags names the flag, and a type tells it from other errors.
func TestFaultsENG7(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--secret-env acme":                              `--secret-env has "acme"`,
		"--secret-env =SECRET_":                          "write TENANT=PREFIX",
		"--secret-env acme=A_,acme=B_":                   "once for each tenant",
		"--secret-env acme=SECRET_,rival=SECRET_RIVAL_":  "the prefix SECRET_RIVAL_ begins with SECRET_",
		"--secret-env acme=":                             "is no name of a variable",
		"--executors command,shell":                      "name noop, command, http and llm",
		"--executors llm":                                "need --llm-url",
		"--executors http --http-networks 10.0.0.1":      "which is no network",
		"--executors http,llm --llm-url file:///etc/key": "--llm-url is no address",
		"--secrets-dir /none":                            "--secrets-dir /none is no directory",
	} {
		_, err := build(t, workerflags.Options{Environment: "prod"}, strings.Fields(args)...)
		if e, ok := errors.AsType[*workerflags.Error](err); !ok || !strings.Contains(e.Error(), want) {
			t.Errorf("%s: want %q, got %v", args, want, err)
		}
	}
	damaged := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(damaged, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{damaged: "has no certificate: name a PEM file", damaged + ".none": "no such file"} {
		vault := map[string]string{"VAULT_ADDR": "https://vault.example", "VAULT_TOKEN": "t", "VAULT_CACERT": file}
		_, err := build(t, workerflags.Options{Environment: "prod", Getenv: func(name string) string { return vault[name] }})
		if e, ok := errors.AsType[*workerflags.Error](err); !ok || !strings.HasPrefix(e.Error(), "VAULT_CACERT: ") || !strings.Contains(e.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	w, err := build(t, workerflags.Options{}, "--executors", "http")
	if err != nil || !slices.Equal(w.Executors.Names(), []string{"http", "noop"}) {
		t.Errorf("got %v, %v", w.Executors, err)
	}
}
