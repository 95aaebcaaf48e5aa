package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"runlog/client/transport/certfile"
	"runlog/server/rpc/decode"
)

// clientTLS is TLS on the listeners of clients. A handshake uses the certificate that is in the
// files at that time.
type clientTLS struct {
	files *certfile.Files[clientConfigs]
	log   *slog.Logger
}

// clientConfigs are the configurations of the two listeners. They never change.
type clientConfigs struct{ grpc, http *tls.Config }

// loadClientTLS loads the certificate for clients; nil: the options name none.
func (o *Options) loadClientTLS(log *slog.Logger) (*clientTLS, error) {
	t := o.ClientTLS
	if t == (TLSFiles{}) {
		return nil, nil
	}
	paths := []string{t.Cert, t.Key}
	if t.CA != "" {
		paths = append(paths, t.CA)
	}
	files, err := certfile.Load(certfile.Options[clientConfigs]{Paths: paths, Clock: o.Clock,
		Read: func(*clientConfigs) (*clientConfigs, error) { return t.read(o.Clock) }})
	if err != nil {
		// The cause is text only, because advice about the data directory would be wrong.
		return nil, fmt.Errorf("certificate for clients: %s; name PEM files that this user can read with --tls-cert, --tls-key and --tls-client-ca", err.Error())
	}
	return &clientTLS{files: files, log: log}, nil
}

// read reads a certificate with its key, and the authorities of clients if there is such a file.
func (t TLSFiles) read(clock func() time.Time) (*clientConfigs, error) {
	own, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if _, ok := errors.AsType[*os.PathError](err); ok {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%s and %s are no certificate with its key: %w", t.Cert, t.Key, err)
	}
	switch now := clock(); {
	case now.After(own.Leaf.NotAfter):
		return nil, fmt.Errorf("%s is expired since %s", t.Cert, own.Leaf.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(own.Leaf.NotBefore):
		return nil, fmt.Errorf("%s is not valid before %s", t.Cert, own.Leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own}, Time: clock}
	if t.CA != "" {
		text, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, err
		}
		if config.ClientCAs, err = certfile.Authorities(text); err != nil {
			return nil, fmt.Errorf("%s %w", t.CA, err)
		}
		config.ClientAuth = tls.VerifyClientCertIfGiven
		// A resumed session would be that of a certificate whose authority may be gone.
		config.SessionTicketsDisabled = true
	}
	c := &clientConfigs{grpc: config, http: config.Clone()}
	// Without HTTP/2 the connections bound the calls over HTTP (ADR 30).
	c.grpc.NextProtos, c.http.NextProtos = []string{"h2"}, []string{"http/1.1"}
	return c, nil
}

// current returns the configurations for a handshake.
func (t *clientTLS) current() *clientConfigs {
	return t.files.Kept(t.log)
}

// config returns a configuration that is chosen at each handshake.
func (t *clientTLS) config(of func(*clientConfigs) *tls.Config) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return of(t.current()), nil }}
}

// http returns the configuration of the HTTP listener.
func (t *clientTLS) http() *tls.Config {
	return t.config(func(c *clientConfigs) *tls.Config { return c.http })
}

// credentials returns those of the gRPC server for clients.
func (t *clientTLS) credentials() credentials.TransportCredentials {
	return clientCredentials{credentials.NewTLS(t.config(func(c *clientConfigs) *tls.Config { return c.grpc }))}
}

// clientCredentials demand TLS, but not on the gateway's connection in memory.
type clientCredentials struct {
	credentials.TransportCredentials
}

// ServerHandshake is that of the connection's kind.
func (c clientCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if conn.LocalAddr().Network() == decode.Gateway.Network() {
		return insecure.NewCredentials().ServerHandshake(conn)
	}
	return c.TransportCredentials.ServerHandshake(conn)
}

// Clone returns a copy.
func (c clientCredentials) Clone() credentials.TransportCredentials {
	return clientCredentials{c.TransportCredentials.Clone()}
}
