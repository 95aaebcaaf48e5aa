package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"runlog/client/address"
)

// ErrPlainToken refuses to send a token where others can read it.
var ErrPlainToken = errors.New("client: the token would leave this machine in plain text")

// Secure reports whether the addresses of a target ask for TLS, with https://.
func Secure(target string) (bool, error) {
	secure, plain := false, false
	for text := range strings.SplitSeq(target, ",") {
		_, scheme, err := address.Parse(text, address.DefaultPort)
		if err != nil {
			return false, err
		}
		secure, plain = secure || scheme == "https", plain || scheme != "https"
	}
	if secure && plain {
		return false, fmt.Errorf("%q has addresses with https:// and others without; write https:// before all of them, or before none", target)
	}
	return secure, nil
}

// Transport returns the options of a connection to an address (Addresses): TLS or plain text, and
// the token. It refuses to send a token in plain text to another machine.
func (o Options) Transport(address string) ([]grpc.DialOption, error) {
	creds := insecure.NewCredentials()
	if o.TLS != nil {
		creds = credentials.NewTLS(o.TLS)
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(creds)}
	if o.Token == "" {
		return options, nil
	}
	if o.TLS == nil && !o.Insecure && !onThisMachine(address) {
		return nil, fmt.Errorf("%w, to %s; connect with TLS (https://), or set Options.Insecure", ErrPlainToken, address)
	}
	return append(options, grpc.WithPerRPCCredentials(bearer(o.Token))), nil
}

// onThisMachine reports whether what is sent to an address stays on this machine.
func onThisMachine(address string) bool {
	if strings.HasPrefix(address, "unix:") {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// bearer is the token of every call.
type bearer string

var _ credentials.PerRPCCredentials = bearer("")

// GetRequestMetadata returns the header of a call.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity is false: Transport has judged the address.
func (bearer) RequireTransportSecurity() bool { return false }

// String hides the token from formatting.
func (bearer) String() string { return "token" }

// checkToken refuses a text that no header can have. The error does not repeat it.
func checkToken(token string) error {
	for i := range len(token) {
		if token[i] <= ' ' || token[i] > '~' {
			return errors.New("client: Token has a blank, an end of a line or another character that no token has; leave it out")
		}
	}
	return nil
}

// withScheme returns the options with TLS if the target asks for it.
func (o Options) withScheme(target string) (Options, error) {
	secure, err := Secure(target)
	if err != nil {
		return o, fmt.Errorf("client: %w", err)
	}
	if secure && o.TLS == nil {
		o.TLS = &tls.Config{MinVersion: tls.VersionTLS13}
	}
	return o, nil
}
