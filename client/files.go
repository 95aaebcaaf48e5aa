package client

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc/credentials"

	"runlog/client/transport/certfile"
)

// fileCredentials secure a connection by the files as they are at its handshake.
type fileCredentials struct {
	credentials.TransportCredentials // of the files as they were at first
	files                            *certfile.Files[tls.Config]
	log                              *slog.Logger
}

// ClientHandshake is credentials.TransportCredentials'.
func (c fileCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config := c.files.Kept(c.log)
	conn, info, err := credentials.NewTLS(config).ClientHandshake(ctx, authority, raw)
	if err != nil || len(config.Certificates) == 0 {
		return conn, info, err
	}
	left := time.Until(config.Certificates[0].Leaf.NotAfter)
	if left > 2*endsAhead {
		left -= endsAhead
	}
	return endingConn{conn, time.AfterFunc(left, func() { _ = conn.Close() })}, info, nil
}

// Clone is credentials.TransportCredentials'. The credentials never change.
func (c fileCredentials) Clone() credentials.TransportCredentials { return c }

// endsAhead is how long before the end of its certificate a connection ends.
const endsAhead = time.Minute

// endingConn is a connection that ends with its certificate: a node refuses its calls from then on,
// and the next connection has the certificate that is in the files.
type endingConn struct {
	net.Conn
	end *time.Timer
}

// Close is net.Conn's.
func (c endingConn) Close() error {
	c.end.Stop()
	return c.Conn.Close()
}

// fileToken has the token of a file as it is at each call.
type fileToken struct {
	files *certfile.Files[string]
	log   *slog.Logger
}

var _ credentials.PerRPCCredentials = fileToken{}

// GetRequestMetadata is credentials.PerRPCCredentials'.
func (t fileToken) GetRequestMetadata(ctx context.Context, uri ...string) (map[string]string, error) {
	return bearerToken(*t.files.Kept(t.log)).GetRequestMetadata(ctx, uri...)
}

// RequireTransportSecurity is that of a token that does not change.
func (fileToken) RequireTransportSecurity() bool { return bearerToken("").RequireTransportSecurity() }

// token returns what the file of the token has. Another pointer: it was read again. nil: there is
// no file.
func (o *Options) token() *string {
	if o.TokenFiles == nil {
		return nil
	}
	return o.TokenFiles.Kept(o.Logger)
}
