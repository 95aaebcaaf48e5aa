package rpc

import (
	"context"
	"crypto/x509"
	"net/http"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"

	"runlog/server/rpc/decode"
)

// Headers of a stream over HTTP, on the connection of the gateway in memory. On others they
// mean nothing.
const (
	certificateHeader = "runlog-client-certificate-bin"
	addressHeader     = "runlog-client-address"
)

// HTTPClient is a client that calls over HTTP.
type HTTPClient struct {
	Address     string            // of its connection
	Certificate *x509.Certificate // verified; nil: it has shown none
}

type httpClientKey struct{}

// WithHTTPClient returns the context of a call over HTTP.
func WithHTTPClient(r *http.Request) context.Context {
	client := &HTTPClient{Address: r.RemoteAddr}
	if t := r.TLS; t != nil && len(t.VerifiedChains) > 0 {
		client.Certificate = t.PeerCertificates[0]
	}
	return context.WithValue(r.Context(), httpClientKey{}, client)
}

// PassHTTPClient returns the context of a stream over the gateway's connection, with the client of
// ctx.
func PassHTTPClient(ctx context.Context) context.Context {
	c, ok := ctx.Value(httpClientKey{}).(*HTTPClient)
	if !ok {
		return ctx
	}
	ctx = metadata.AppendToOutgoingContext(ctx, addressHeader, c.Address)
	if c.Certificate != nil {
		ctx = metadata.AppendToOutgoingContext(ctx, certificateHeader, string(c.Certificate.Raw))
	}
	return ctx
}

// certificate returns the verified certificate of the client that calls; nil: it has shown none.
func certificate(ctx context.Context) *x509.Certificate {
	if c, ok := ctx.Value(httpClientKey{}).(*HTTPClient); ok {
		return c.Certificate
	}
	p, ok := grpcpeer.FromContext(ctx)
	if !ok {
		return nil
	}
	if tls, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(tls.State.VerifiedChains) > 0 {
		return tls.State.PeerCertificates[0]
	}
	if c, err := x509.ParseCertificate([]byte(passed(ctx, p, certificateHeader))); err == nil {
		return c
	}
	return nil
}

// clientAddress returns the address of the client that calls; empty: it is not known.
func clientAddress(ctx context.Context) string {
	if c, ok := ctx.Value(httpClientKey{}).(*HTTPClient); ok {
		return c.Address
	}
	p, ok := grpcpeer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	if address := passed(ctx, p, addressHeader); address != "" {
		return address
	}
	return p.Addr.String()
}

// passed returns a header that the gateway has set; empty: it has not.
func passed(ctx context.Context, p *grpcpeer.Peer, header string) string {
	if p.Addr.Network() != decode.Gateway.Network() {
		return ""
	}
	in, _ := metadata.FromIncomingContext(ctx)
	if values := in.Get(header); len(values) == 1 {
		return values[0]
	}
	return ""
}
