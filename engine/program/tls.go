package program

import (
	"crypto/tls"
	"flag"
	"fmt"
	"os"

	"runlog/client/contexts"
	"runlog/client/transport/certfile"
)

// TLS are the flags of the connection to the server of an engine. Their names begin with that of
// the engine, such as temporal.
type TLS struct {
	CACert, Cert, CertKey, Name string

	prefix string
}

// Register adds the flags to a set. The engine is called name in their texts, and by prefix in
// their names; --prefix has its address.
func (t *TLS) Register(set *flag.FlagSet, prefix, name string) {
	t.prefix = prefix
	set.StringVar(&t.CACert, prefix+"-cacert", "", "PEM file of the certificate authority of "+name+" (default: those of this system)")
	set.StringVar(&t.Cert, prefix+"-cert", "", fmt.Sprintf("PEM file of the client certificate, with its key unless --%s-cert-key names it", prefix))
	set.StringVar(&t.CertKey, prefix+"-cert-key", "", fmt.Sprintf("PEM file of the key of --%s-cert", prefix))
	set.StringVar(&t.Name, prefix+"-server-name", "", fmt.Sprintf("name in the certificate of %s (default: the host of --%s)", name, prefix))
}

// Given reports whether a flag asks for TLS.
func (t *TLS) Given() bool { return t.CACert != "" || t.Cert != "" || t.CertKey != "" || t.Name != "" }

// Check returns the fault of the flags, without a look at their files.
func (t *TLS) Check() error {
	if t.CertKey != "" && t.Cert == "" {
		return fmt.Errorf("--%[1]s-cert-key needs --%[1]s-cert", t.prefix)
	}
	return nil
}

// Files reads the files of the flags, and again when they change: a rotation needs no restart.
func (t *TLS) Files() (*certfile.Files[tls.Config], error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	var paths []string
	for _, path := range []string{t.CACert, t.Cert, t.CertKey} {
		if path != "" {
			paths = append(paths, path)
		}
	}
	return certfile.Load(certfile.Options[tls.Config]{Paths: paths, What: "the TLS files of --" + t.prefix,
		Read: func(*tls.Config) (*tls.Config, error) { return t.config() }})
}

// config reads the files.
func (t *TLS) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.Name}
	if t.CACert != "" {
		text, err := os.ReadFile(t.CACert)
		if err != nil {
			return nil, fmt.Errorf("--%s-cacert: %w", t.prefix, err)
		}
		if config.RootCAs, err = certfile.Authorities(text); err != nil {
			return nil, fmt.Errorf("--%s-cacert %s %w", t.prefix, t.CACert, err)
		}
	}
	if t.Cert != "" {
		key := t.CertKey
		if key == "" {
			key = t.Cert
		}
		own, err := tls.LoadX509KeyPair(t.Cert, key)
		if err != nil {
			return nil, fmt.Errorf("--%s-cert %s: %w", t.prefix, t.Cert, err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

// ReadCredential returns the text in the file of a flag, which only its owner may read. what says
// what it is, such as "API key".
func ReadCredential(name, path, what string) (string, error) {
	text, err := contexts.ReadSecret(path)
	if err == nil && text == "" {
		err = fmt.Errorf(" %s: it is empty; write the %s into it", path, what)
	}
	if err != nil {
		return "", fmt.Errorf("--%s%w", name, err)
	}
	return text, nil
}
