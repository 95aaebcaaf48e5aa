package workerflags

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"

	"runlog/engine/secret"
)

// secretPrefix stands before the names of the variables that plans may name. A plan must not send
// the credentials of the worker elsewhere.
const secretPrefix = "SECRET_"

// secrets returns the provider of the secrets of steps, and that of the operator's own ones.
func (f *Flags) secrets(o Options) (steps, own secret.Mux, err error) {
	lookup := func(name string) (string, bool) {
		value := o.Getenv(name)
		return value, value != ""
	}
	steps = secret.Mux{"env": secret.Env{Prefix: secretPrefix, Lookup: lookup}}
	own = secret.Mux{"env": secret.Env{Lookup: lookup}}
	if f.secretsDir != "" {
		if info, err := os.Stat(f.secretsDir); err != nil || !info.IsDir() {
			return nil, nil, fault("--secrets-dir %s is no directory that can be read: name one", f.secretsDir)
		}
		steps["file"] = secret.File{Dir: f.secretsDir}
		own["file"] = steps["file"]
	}
	if address := o.Getenv("VAULT_ADDR"); address != "" {
		vault, err := vault(o.Getenv, address)
		if err != nil {
			return nil, nil, fault("VAULT_ADDR: %v", err)
		}
		steps["vault"], own["vault"] = vault, vault
	}
	return steps, own, nil
}

func vault(getenv func(string) string, address string) (*secret.Vault, error) {
	o := secret.VaultOptions{Address: address, Namespace: getenv("VAULT_NAMESPACE"), Token: func() string { return getenv("VAULT_TOKEN") }}
	if getenv("VAULT_TOKEN") == "" {
		home := getenv("HOME")
		if home == "" {
			return nil, errors.New("there is no token: set VAULT_TOKEN, or HOME for the file .vault-token")
		}
		o.TokenFile = filepath.Join(home, ".vault-token")
	}
	if file := getenv("VAULT_CACERT"); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		o.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
		if !o.TLS.RootCAs.AppendCertsFromPEM(text) {
			return nil, errors.New("VAULT_CACERT has no certificate: name a PEM file")
		}
	}
	return secret.NewVault(o)
}
