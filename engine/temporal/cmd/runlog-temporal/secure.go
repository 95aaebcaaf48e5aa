package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"

	sdkclient "go.temporal.io/sdk/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"runlog/client/address"
	"runlog/client/contexts"
	"runlog/client/transport/certfile"
)

// security are the flags of the connection to Temporal.
type security struct {
	tls                                 bool
	cacert, cert, certKey, name, apiKey string
}

func (s *security) register(f *flag.FlagSet) {
	f.BoolVar(&s.tls, "temporal-tls", false, "connect to Temporal with TLS, as each of these flags does")
	f.StringVar(&s.cacert, "temporal-cacert", "", "PEM file of the certificate authority of Temporal (default: those of this system)")
	f.StringVar(&s.cert, "temporal-cert", "", "PEM file of the client certificate, with its key unless --temporal-cert-key names it")
	f.StringVar(&s.certKey, "temporal-cert-key", "", "PEM file of the key of --temporal-cert")
	f.StringVar(&s.name, "temporal-server-name", "", "name in the certificate of Temporal (default: the host of --temporal)")
	f.StringVar(&s.apiKey, "temporal-api-key-file", "", "file of an API key, readable for its owner alone")
}

// asked reports whether a flag asks for TLS. An API key must not leave this machine in plain text.
func (s *security) asked(server string) bool {
	return s.tls || s.cacert != "" || s.cert != "" || s.name != "" || s.apiKey != "" && !address.OnThisMachine(server)
}

// apply adds what the flags say to the options of a client. Files are read again when they change,
// so a rotation needs no restart.
func (s *security) apply(o *sdkclient.Options, logger *slog.Logger) error {
	if s.certKey != "" && s.cert == "" {
		return errors.New("--temporal-cert-key needs --temporal-cert")
	}
	if s.apiKey != "" {
		if _, err := s.key(); err != nil {
			return err
		}
		o.Credentials = sdkclient.NewAPIKeyDynamicCredentials(func(context.Context) (string, error) { return s.key() })
	}
	if !s.asked(o.HostPort) {
		o.ConnectionOptions.TLSDisabled = true
		return nil
	}
	var paths []string
	for _, path := range []string{s.cacert, s.cert, s.certKey} {
		if path != "" {
			paths = append(paths, path)
		}
	}
	files, err := certfile.Load(certfile.Options[tls.Config]{Paths: paths, Read: func(*tls.Config) (*tls.Config, error) { return s.config() }})
	if err != nil {
		return fmt.Errorf("cannot read the files of the connection to Temporal: %w; name PEM files that this user can read", err)
	}
	o.ConnectionOptions.TLS = files.Last()
	// The credentials come after those of the SDK, and replace them.
	o.ConnectionOptions.DialOptions = []grpc.DialOption{grpc.WithTransportCredentials(&reloading{files, logger})}
	if s.name != "" {
		o.ConnectionOptions.DialOptions = append(o.ConnectionOptions.DialOptions, grpc.WithAuthority(s.name))
	}
	return nil
}

// key reads the API key.
func (s *security) key() (string, error) {
	key, err := contexts.ReadSecret(s.apiKey)
	if err == nil && key == "" {
		err = fmt.Errorf(" %s: it is empty; write the API key into it", s.apiKey)
	}
	if err != nil {
		return "", fmt.Errorf("--temporal-api-key-file%w", err)
	}
	return key, nil
}

// config reads the files.
func (s *security) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.name}
	if s.cacert != "" {
		text, err := os.ReadFile(s.cacert)
		if err != nil {
			return nil, err
		}
		if config.RootCAs, err = certfile.Authorities(text); err != nil {
			return nil, fmt.Errorf("--temporal-cacert %s %w", s.cacert, err)
		}
	}
	if s.cert != "" {
		key := s.certKey
		if key == "" {
			key = s.cert
		}
		own, err := tls.LoadX509KeyPair(s.cert, key)
		if err != nil {
			return nil, fmt.Errorf("--temporal-cert %s: %w", s.cert, err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

// reloading are credentials of files that may change. Each connection has the newest ones.
type reloading struct {
	files  *certfile.Files[tls.Config]
	logger *slog.Logger
}

// ClientHandshake secures a connection.
func (r *reloading) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := r.files.Current()
	if err != nil {
		r.logger.WarnContext(ctx, "cannot read the changed TLS files; the earlier ones go on", "err", err)
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, conn)
}

// ServerHandshake is for servers.
func (r *reloading) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("the connection to Temporal has no server on this side")
}

// Info describes the protocol.
func (r *reloading) Info() credentials.ProtocolInfo { return credentials.NewTLS(r.files.Last()).Info() }

// Clone returns the same credentials, which do not change.
func (r *reloading) Clone() credentials.TransportCredentials { return r }

// OverrideServerName does nothing: --temporal-server-name has the name.
func (r *reloading) OverrideServerName(string) error { return nil }
