package workerflags

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"runlog/client/transport/certfile"
	"runlog/engine/secret"
)

// prefixOf returns what the names of the variables begin with that plans of a tenant may name, such
// as SECRET_ACME_ for acme. Small letters become capital ones, digits stay, and of each other byte
// there are an x and two hexadecimal digits. So a name has no underscore there, and different names
// stay different: no prefix begins with that of another tenant, whatever the tenants are called.
func prefixOf(tenant string) string {
	var b strings.Builder
	b.WriteString("SECRET_")
	for i := range len(tenant) {
		switch c := tenant[i]; {
		case 'a' <= c && c <= 'z':
			b.WriteByte(c - 'a' + 'A')
		case '0' <= c && c <= '9':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "x%02x", c)
		}
	}
	b.WriteByte('_')
	return b.String()
}

// secrets returns the provider of the secrets of steps, and that of the operator's own ones.
func (f *Flags) secrets(o Options) (steps, own secret.Mux, err error) {
	lookup := func(name string) (string, bool) {
		value := o.Getenv(name)
		return value, value != ""
	}
	prefixes, err := f.prefixes(o)
	if err != nil {
		return nil, nil, err
	}
	env, err := secret.NewEnv(prefixes, lookup)
	if err != nil {
		return nil, nil, fault("--secret-env: %v", err)
	}
	steps, own = secret.Mux{"env": env}, secret.Mux{"env": secret.OwnEnv(lookup)}
	if f.secretsDir != "" {
		if info, err := os.Stat(f.secretsDir); err != nil || !info.IsDir() {
			return nil, nil, fault("--secrets-dir %s is no directory that can be read: name one", f.secretsDir)
		}
		steps["file"] = secret.File{Dir: f.secretsDir}
		own["file"] = secret.File{Dir: f.secretsDir, Own: true}
	}
	if address := o.Getenv("VAULT_ADDR"); address != "" {
		authorities, err := vaultAuthorities(o.Getenv("VAULT_CACERT"))
		if err != nil {
			return nil, nil, fault("VAULT_CACERT: %v", err)
		}
		var vaults [2]*secret.Vault
		for i, isOwn := range []bool{false, true} {
			if vaults[i], err = vault(o, secret.VaultOptions{Address: address, Own: isOwn, TLSFiles: authorities}); err != nil {
				return nil, nil, fault("VAULT_ADDR: %v", err)
			}
		}
		steps["vault"], own["vault"] = vaults[0], vaults[1]
	}
	return steps, own, nil
}

// prefixes returns those of --secret-env, by what the runs belong to.
func (f *Flags) prefixes(o Options) (map[secret.Scope]string, error) {
	all := map[secret.Scope]string{}
	if o.Tenant != "" && len(f.secretEnv) == 0 {
		all[secret.Scope{TenantID: o.Tenant, EnvironmentID: o.Environment}] = prefixOf(o.Tenant)
	}
	for _, text := range f.secretEnv {
		tenant, prefix, ok := strings.Cut(text, "=")
		scope := secret.Scope{TenantID: tenant, EnvironmentID: o.Environment}
		if _, twice := all[scope]; !ok || tenant == "" || twice {
			return nil, fault("--secret-env has %q: write TENANT=PREFIX, such as acme=SECRET_ACME_, once for each tenant", text)
		}
		all[scope] = prefix
	}
	return all, nil
}

// vault completes the options of a Vault with the variables that Vault's own command has too.
func vault(o Options, v secret.VaultOptions) (*secret.Vault, error) {
	v.Namespace, v.Token, v.Logger = o.Getenv("VAULT_NAMESPACE"), func() string { return o.Getenv("VAULT_TOKEN") }, o.Logger
	if o.Getenv("VAULT_TOKEN") == "" {
		home := o.Getenv("HOME")
		if home == "" {
			return nil, errors.New("there is no token: set VAULT_TOKEN, or HOME for the file .vault-token")
		}
		v.TokenFile = filepath.Join(home, ".vault-token")
	}
	return secret.NewVault(v)
}

// vaultAuthorities reads a file of certificate authorities, and again when it changes; nil: there
// is none.
func vaultAuthorities(file string) (*certfile.Files[tls.Config], error) {
	if file == "" {
		return nil, nil
	}
	return certfile.Load(certfile.Options[tls.Config]{Paths: []string{file}, What: "the authorities of VAULT_CACERT", Read: func(*tls.Config) (*tls.Config, error) {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s has no certificate: name a PEM file", file)
		}
		return config, nil
	}})
}
