package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"

	sdkclient "go.temporal.io/sdk/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"runlog/client/address"
	"runlog/client/transport/certfile"
	"runlog/engine/program"
)

// security are the flags of the connection to Temporal.
type security struct {
	tls    bool
	files  program.TLS
	apiKey string
}

func (s *security) register(f *flag.FlagSet) {
	f.BoolVar(&s.tls, "temporal-tls", false, "connect to Temporal with TLS, as each of these flags does")
	s.files.Register(f, "temporal", "Temporal")
	f.StringVar(&s.apiKey, "temporal-api-key-file", "", "file of an API key, readable for its owner alone")
}

// asked reports whether a flag asks for TLS. An API key must not leave this machine in plain text.
func (s *security) asked(server string) bool {
	return s.tls || s.files.CACert != "" || s.files.Cert != "" || s.files.Name != "" || s.apiKey != "" && !address.OnThisMachine(server)
}

// apply adds what the flags say to the options of a client. Files are read again when they change,
// so a rotation needs no restart.
func (s *security) apply(o *sdkclient.Options, logger *slog.Logger) error {
	if err := s.files.Check(); err != nil {
		return err
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
	files, err := s.files.Files()
	if err != nil {
		return fmt.Errorf("cannot read the files of the connection to Temporal: %w; name PEM files that this user can read", err)
	}
	o.ConnectionOptions.TLS = files.Last()
	// The credentials come after those of the SDK, and replace them.
	o.ConnectionOptions.DialOptions = []grpc.DialOption{grpc.WithTransportCredentials(&reloading{files, logger})}
	if s.files.Name != "" {
		o.ConnectionOptions.DialOptions = append(o.ConnectionOptions.DialOptions, grpc.WithAuthority(s.files.Name))
	}
	return nil
}

// key reads the API key.
func (s *security) key() (string, error) {
	return program.ReadCredential("temporal-api-key-file", s.apiKey, "API key")
}

// reloading are credentials of files that may change. Each connection has the newest ones.
type reloading struct {
	files  *certfile.Files[tls.Config]
	logger *slog.Logger
}

// ClientHandshake secures a connection.
func (r *reloading) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(r.files.Kept(r.logger)).ClientHandshake(ctx, authority, conn)
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
