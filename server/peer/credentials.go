package peer

import (
	"context"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
	grpcpeer "google.golang.org/grpc/peer"
)

// transport is the gRPC credentials object: the connections are authenticated already.
type transport struct{ level credentials.SecurityLevel }

var _ credentials.TransportCredentials = transport{}

// authInfo is what gRPC stores with a connection.
type authInfo struct {
	credentials.CommonAuthInfo
	other Identity
}

func (authInfo) AuthType() string { return "runlog-peer" }

// errForeignConn refuses a connection that no Mesh made: its other end is unknown.
var errForeignConn = errors.New("peer: not a connection that passed the handshake")

// Credentials are for gRPC servers and clients on connections of this package only. They add no
// TLS, and let handlers call From.
func (m *Mesh) Credentials() credentials.TransportCredentials {
	if m.opts.TLS == nil {
		return transport{credentials.NoSecurity}
	}
	return transport{credentials.PrivacyAndIntegrity}
}

// From returns the caller of a gRPC handler.
func From(ctx context.Context) (Identity, bool) {
	p, ok := grpcpeer.FromContext(ctx)
	if !ok {
		return Identity{}, false
	}
	info, ok := p.AuthInfo.(authInfo)
	return info.other, ok
}

func (t transport) ClientHandshake(_ context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return t.ServerHandshake(conn)
}

func (t transport) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, ok := conn.(*Conn)
	if !ok {
		return nil, nil, errForeignConn
	}
	return conn, authInfo{credentials.CommonAuthInfo{SecurityLevel: t.level}, c.other}, nil
}

func (t transport) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "runlog-peer"}
}

func (t transport) Clone() credentials.TransportCredentials { return t }

// OverrideServerName is part of the interface; nodes have no server names.
func (transport) OverrideServerName(string) error { return nil }
