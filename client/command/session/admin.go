package session

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"

	"github.com/spf13/cobra"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"runlog/client"
	"runlog/client/address"
	"runlog/client/command/output"
)

// DefaultAdmin is the address of the admin listener, if the command line names none.
const (
	DefaultAdmin = "127.0.0.1:7412"

	defaultAdminPort = 7412
)

// AdminFlag adds the flag --admin to a command.
func AdminFlag(cmd *cobra.Command, admin *string) {
	*admin = DefaultAdmin
	cmd.Flags().Var((*adminAddress)(admin), "admin", "address of the node's admin listener; the port is 7412 if left out")
}

// adminAddress is the value of the flag --admin, in the forms of --server.
type adminAddress string

// String returns host:port.
func (a *adminAddress) String() string { return string(*a) }

// Set takes the value from the command line.
func (a *adminAddress) Set(text string) error {
	at, err := address.Of(text, defaultAdminPort)
	if err == nil {
		*a = adminAddress(at)
	}
	return err
}

// Type names the value in the help.
func (a *adminAddress) Type() string { return "address" }

// AdminRequest returns a request to an admin listener, with the token of the connection (SEC-12).
// A stored token goes to its own server only, and no token leaves this machine in plain text
// without --insecure.
func (s *Session) AdminRequest(ctx context.Context, method, admin, path string, body io.Reader) (*http.Request, error) {
	if err := s.configure(); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+admin+path, body)
	if err != nil {
		return nil, output.UsageError("--admin %q is not an address such as %s", admin, DefaultAdmin)
	}
	token, err := s.ReadToken()
	if err != nil {
		return nil, output.UsageError("--%v", err)
	}
	if token == "" || s.storedFor != "" && !sameMachine(s.storedFor, admin) {
		return req, nil
	}
	if !s.Insecure && !address.OnThisMachine(admin) {
		return nil, output.UsageError("the token is not sent to the admin listener %s in plain text; run the command on the node's machine; --insecure sends it all the same", admin)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	return req, nil
}

// sameMachine reports whether one of the servers has the host of an admin listener.
func sameMachine(servers, admin string) bool {
	list, err := address.List(servers)
	host, _, _ := net.SplitHostPort(admin)
	return err == nil && slices.ContainsFunc(list, func(server string) bool {
		of, _, _ := net.SplitHostPort(server)
		return of == host || address.OnThisMachine(server) && address.OnThisMachine(admin)
	})
}

// AdminError returns the error in the answer of an admin listener; nil: it has none.
func AdminError(text []byte) *client.Error {
	var st statuspb.Status
	if err := protojson.Unmarshal(text, &st); err == nil && st.Code != 0 {
		return client.ErrorOf(status.FromProto(&st))
	}
	return nil
}
