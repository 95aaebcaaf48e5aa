// Package bearer has the credentials of calls with a bearer token.
package bearer

import (
	"context"
	"errors"

	"google.golang.org/grpc/credentials"
)

// Token is the token of every call of a connection.
type Token string

var _ credentials.PerRPCCredentials = Token("")

// GetRequestMetadata returns the header of a call.
func (t Token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(t)}, nil
}

// RequireTransportSecurity is false: the client has judged the address.
func (Token) RequireTransportSecurity() bool { return false }

// String hides the token from formatting.
func (Token) String() string { return "token" }

// Check refuses a text that no header can have. The error does not repeat it.
func (t Token) Check() error {
	for i := range len(t) {
		if t[i] <= ' ' || t[i] > '~' {
			return errors.New("client: Token has a blank, an end of a line or another character that no token has; leave it out")
		}
	}
	return nil
}
