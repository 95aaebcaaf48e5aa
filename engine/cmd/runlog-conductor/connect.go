package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"

	"runlog/client/address"
	"runlog/client/transport/certfile"
	"runlog/engine/conductor/api"
	"runlog/engine/program"
)

// conductorFlags are the flags of the connection to Conductor.
type conductorFlags struct {
	url       string
	tls       program.TLS
	tokenFile string
}

func (c *conductorFlags) register(f *flag.FlagSet) {
	f.StringVar(&c.url, "conductor", "http://127.0.0.1:8080", "URL of Conductor, without /api; https:// asks for TLS")
	c.tls.Register(f, "conductor", "Conductor")
	f.StringVar(&c.tokenFile, "conductor-token-file", "", "file with the value of the header X-Authorization, readable for its owner alone")
}

// check adds the faults of the flags.
func (c *conductorFlags) check(f *program.Faults) {
	u, err := url.Parse(c.url)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		// The text may have a password.
		f.Refuse(true, "--conductor is no URL of a server: write http://host:port or https://host:port; --conductor-token-file has the credential")
		return
	}
	if err := c.tls.Check(); err != nil {
		*f = append(*f, err)
	}
	plain := u.Scheme == "http"
	f.Refuse(strings.HasSuffix(strings.TrimRight(u.Path, "/"), "/api"), "--conductor is %q: leave /api out", c.url)
	f.Refuse(plain && c.tls.Given(), "--conductor-cacert, --conductor-cert, --conductor-cert-key and --conductor-server-name need an https:// URL in --conductor, which is %q", c.url)
	f.Refuse(plain && c.tokenFile != "" && !address.OnThisMachine(u.Host), "--conductor-token-file: the token would leave this machine in plain text: write https:// in --conductor, which is %q", c.url)
}

// private reports whether only users of this machine can be behind Conductor.
func (c *conductorFlags) private() bool {
	u, err := url.Parse(c.url)
	return err == nil && address.OnThisMachine(u.Host) && c.tokenFile == "" && c.tls.Cert == ""
}

// dial returns a client of Conductor. The files of the flags are read again when they change.
func (c *conductorFlags) dial(logger *slog.Logger) (*api.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	// Each task that is executed, and each poll, has a request of its own.
	transport.MaxIdleConnsPerHost = 64
	if strings.HasPrefix(c.url, "https://") {
		files, err := c.tls.Files()
		if err != nil {
			return nil, fmt.Errorf("cannot read the files of the connection to Conductor: %w; name PEM files that this user can read", err)
		}
		s := &secured{files, logger}
		transport.DialTLSContext = s.dial
	}
	o := api.Options{URL: c.url, Transport: transport}
	if c.tokenFile != "" {
		var err error
		if o.Credential, err = c.credential(logger); err != nil {
			return nil, err
		}
	}
	return api.New(o)
}

// credential returns what reads the value of X-Authorization, again when its file changes.
func (c *conductorFlags) credential(logger *slog.Logger) (func() string, error) {
	if _, err := c.token(); err != nil { // It names the flag of a file that is missing.
		return nil, err
	}
	files, err := certfile.Load(certfile.Options[string]{Paths: []string{c.tokenFile}, What: "the token of --conductor-token-file", Read: func(*string) (*string, error) {
		text, err := c.token()
		return &text, err
	}})
	if err != nil {
		return nil, err
	}
	return func() string { return *files.Kept(logger) }, nil
}

// token reads the value of X-Authorization.
func (c *conductorFlags) token() (string, error) {
	const flag = "conductor-token-file"
	text, err := program.ReadCredential(flag, c.tokenFile, "value of X-Authorization")
	if err == nil && strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		err = fmt.Errorf("--%s %s: it has a second line, or a character that no header has; write the value alone into it", flag, c.tokenFile)
	}
	return text, err
}

// secured makes connections with TLS. Each has the newest files.
type secured struct {
	files  *certfile.Files[tls.Config]
	logger *slog.Logger
}

func (s *secured) dial(ctx context.Context, network, at string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, at)
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(at)
	if err != nil {
		return nil, err
	}
	return s.secure(ctx, conn, host)
}

// secure makes the handshake with a server.
func (s *secured) secure(ctx context.Context, conn net.Conn, host string) (net.Conn, error) {
	config := s.files.Kept(s.logger).Clone()
	if config.ServerName == "" {
		config.ServerName = host
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secure, nil
}
