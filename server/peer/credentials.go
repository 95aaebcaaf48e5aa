package peer

import (
	"context"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
	grpcpeer "google.golang.org/grpc/peer"
)

// transport is what gRPC is given as credentials: the connections have shown theirs already.
type transport struct{ level credentials.SecurityLevel }

var _ credentials.TransportCredentials = transport{}

// authInfo is what gRPC keeps with a connection.
type authInfo struct {
	credentials.CommonAuthInfo
	other Identity
}

func (authInfo) AuthType() string { return "runlog-peer" }

// errForeignConn is for a connection that no Mesh made: who is at its other end is not known.
var errForeignConn = errors.New("peer: not a connection that passed the handshake")

// Credentials are for gRPC servers and clients on connections of this package, and on no others.
// They add no TLS to what the connections have, and let handlers ask From.
func (m *Mesh) Credentials() credentials.TransportCredentials {
	if m.opts.TLS == nil {
		return transport{credentials.NoSecurity}
	}
	return transport{credentials.PrivacyAndIntegrity}
}

// From tells who calls, in a handler of gRPC.
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
