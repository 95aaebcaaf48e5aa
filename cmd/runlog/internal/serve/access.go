package serve

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"runlog/client/command/output"
	"runlog/client/contexts"
	"runlog/server"
	"runlog/server/auth"
	"runlog/server/join"
)

// accessFlags are the flags of TLS and authentication for clients (SEC-1), of secrets in what they
// append, and of this node as it joins others.
type accessFlags struct {
	auth, config, adminToken, joinToken string
	made                                bool // the file of the admin token, by this start
	given                               func(name string) bool
}

func (a *accessFlags) register(f *pflag.FlagSet, opts *server.Options) {
	f.StringVar(&opts.ClientTLS.Cert, "tls-cert", "", "PEM file of the certificate for clients; with it clients must use TLS 1.3; read again when it changes")
	f.StringVar(&opts.ClientTLS.Key, "tls-key", "", "PEM file of the key of --tls-cert")
	f.StringVar(&opts.ClientTLS.CA, "tls-client-ca", "", "PEM file of the certificate authority of clients; --access-config says which subject is whose")
	f.StringVar(&a.auth, "auth", "", "required: each caller must prove its identity; off: a caller without credentials has every right (default required with --access-config, --admin-token-file or --tls-client-ca, else off)")
	f.StringVar(&a.config, "access-config", "", "YAML file of the providers of access tokens (OIDC) and the subjects of client certificates")
	f.StringVar(&a.adminToken, "admin-token-file", "", "file of a token with every right, to make others with (runlog token create); made if it does not exist, in a directory that does")
	f.StringVar(&opts.SecretScan, "secret-scan", server.SecretRefuse, "appends with what looks like a private key or a token: refuse, report (count, log and store them) or off")
	f.StringVar(&a.joinToken, "join-token-file", "", "file of a join token (runlog cluster token create), with which a new node joins the cluster of --join; not needed with --node-ca")
	a.given = f.Changed
	f.BoolVar(&opts.Insecure, "insecure", false, "let other machines reach the node without TLS or without authentication; the node warns at every start")
}

// check reads the files and sets the options.
func (a *accessFlags) check(opts *server.Options) (err error) {
	if err := a.refuseEmpty(opts); err != nil {
		return err
	}
	switch t := opts.ClientTLS; {
	case t.CA != "" && t.Cert == "" && t.Key == "":
		return output.UsageError("--tls-client-ca needs --tls-cert and --tls-key: clients show certificates over TLS alone")
	case (t.Cert == "") != (t.Key == ""):
		return output.UsageError("--tls-cert and --tls-key need each other; name both")
	}
	if opts.Authenticate = a.demanded(opts); a.auth != "" {
		if opts.Authenticate, err = choice("auth", a.auth, "required", "off"); err != nil {
			return err
		}
		opts.Authenticate = !opts.Authenticate
	}
	if a.config != "" {
		text, err := os.ReadFile(a.config)
		if err != nil {
			return output.UsageError("--access-config: %v; name a YAML file that this user can read", err)
		}
		if opts.Access, err = auth.ParseConfig(text); err != nil {
			return output.UsageError("--access-config %s: %v", a.config, err)
		}
	}
	if err := opts.CheckExposure(); err != nil {
		return output.UsageError("%v", err)
	}
	if opts.ClientTLS.Cert != "" { // A start that fails must not leave a token behind.
		if _, err := tls.LoadX509KeyPair(opts.ClientTLS.Cert, opts.ClientTLS.Key); err != nil {
			return output.UsageError("--tls-cert %s, --tls-key %s: %v; name PEM files of a certificate and its key", opts.ClientTLS.Cert, opts.ClientTLS.Key, err)
		}
	}
	if a.adminToken != "" {
		if opts.AdminToken, a.made, err = adminToken(a.adminToken); err != nil {
			return output.UsageError("--admin-token-file%v", err)
		}
	}
	if a.joinToken != "" {
		if opts.JoinToken, err = joinToken(a.joinToken, opts); err != nil {
			return output.UsageError("--join-token-file%v", err)
		}
	}
	return nil
}

// demanded reports whether flags say how callers prove their identity, or that they must.
func (a *accessFlags) demanded(opts *server.Options) bool {
	return a.auth == "required" || a.config != "" || a.adminToken != "" || opts.ClientTLS.CA != ""
}

// refuseEmpty refuses flags without a value, as a variable that is not set leaves them: the node
// would be open.
func (a *accessFlags) refuseEmpty(opts *server.Options) error {
	for _, f := range []struct{ name, value string }{
		{"auth", a.auth}, {"access-config", a.config}, {"admin-token-file", a.adminToken}, {"tls-client-ca", opts.ClientTLS.CA},
	} {
		if f.value == "" && a.given(f.name) {
			return output.UsageError("--%s is empty, and the node would not demand what it is for: give it a value, or leave it out", f.name)
		}
	}
	return nil
}

// tell logs a new token: after a mistyped path, an operator would look for the old one in vain.
func (a *accessFlags) tell(log *slog.Logger) {
	if !a.made {
		return
	}
	path := a.adminToken
	if whole, err := filepath.Abs(path); err == nil {
		path = whole
	}
	log.Warn("made a new admin token; there was no such file", "file", path,
		"remedy", "if a token exists elsewhere, remove this file and correct --admin-token-file")
}

// joinToken returns the token in a file.
func joinToken(path string, opts *server.Options) (string, error) {
	if len(opts.Join) == 0 {
		return "", errors.New(": a join token needs --join and the address of a member")
	}
	text, err := contexts.ReadSecret(path)
	if err != nil {
		return "", err
	}
	if _, ok := join.ParseToken(text); !ok {
		return "", fmt.Errorf(" %s: it has no join token; want rlj_ and 43 characters, as runlog cluster token create prints it", path)
	}
	return text, nil
}

// adminToken returns the hash of the token in a file. If there is no file, it makes both.
func adminToken(path string) (hash auth.TokenHash, made bool, err error) {
	text, err := contexts.ReadSecret(path)
	if errors.Is(err, fs.ErrNotExist) {
		token, hash := auth.NewToken()
		err := makeSecret(path, token)
		return hash, err == nil, err
	}
	if err != nil {
		return hash, false, err
	}
	hash, ok := auth.ParseToken(text)
	if !ok {
		return hash, false, fmt.Errorf(" %s: it has no token; want rlk_ and 43 characters; remove the file, and the node makes a new one", path)
	}
	return hash, false, nil
}

func makeSecret(path, text string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf(": %w; name a file in a directory that exists and that this user can write", err)
	}
	_, err = file.WriteString(strings.TrimSpace(text) + "\n")
	return errors.Join(err, file.Close())
}
