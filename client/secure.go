package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
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
func (o Options) Transport(to string) ([]grpc.DialOption, error) {
	o = o.EnsureDefaults()
	creds := insecure.NewCredentials()
	if o.TLS != nil {
		creds = credentials.NewTLS(o.TLS)
	}
	if o.TLSFiles != nil {
		creds = fileCredentials{creds, o.TLSFiles, o.Logger}
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(creds)}
	if o.Token == "" {
		return options, nil
	}
	if o.TLS == nil && !o.Insecure && !address.OnThisMachine(to) {
		return nil, fmt.Errorf("%w, to %s; connect with TLS (https://), or set Options.Insecure", ErrPlainToken, to)
	}
	if o.TokenFiles != nil {
		return append(options, grpc.WithPerRPCCredentials(fileToken{o.TokenFiles, o.Logger})), nil
	}
	return append(options, grpc.WithPerRPCCredentials(bearerToken(o.Token))), nil
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

// bearerToken is the token of every call of a connection.
type bearerToken string

var _ credentials.PerRPCCredentials = bearerToken("")

// GetRequestMetadata returns the header of a call.
func (t bearerToken) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(t)}, nil
}

// RequireTransportSecurity is false: the client has judged the address.
func (bearerToken) RequireTransportSecurity() bool { return false }

// String hides the token from formatting.
func (bearerToken) String() string { return "token" }

// check refuses a text that no header can have. The error does not repeat it.
func (t bearerToken) check() error {
	for i := range len(t) {
		if t[i] <= ' ' || t[i] > '~' {
			return errors.New("client: Token has a blank, an end of a line or another character that no token has; leave it out")
		}
	}
	return nil
}
