package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	"runlog/client"
	"runlog/client/address"
	"runlog/client/contexts"
	runlogv1 "runlog/proto/runlog/v1"
)

// Node is the connection to runlog.
type Node struct {
	contexts.Connection
	// Page is that of docs/ which says what roles the program needs.
	Page string
}

// Register adds the flags to a set.
func (n *Node) Register(set *flag.FlagSet) {
	set.StringVar(&n.Server, "server", "127.0.0.1:7410", "addresses of runlog, with commas between them; https:// asks for TLS")
	set.StringVar(&n.CACert, "cacert", "", "PEM file of the certificate authority of runlog (default: those of this system)")
	set.StringVar(&n.Cert, "cert", "", "PEM file of the client certificate for runlog, with its key unless --cert-key names it")
	set.StringVar(&n.CertKey, "cert-key", "", "PEM file of the key of --cert")
	set.StringVar(&n.TokenFile, "token-file", "", "file with the token for runlog")
}

// Dial returns a client of the nodes, which connects when it is used. The files of the flags are
// read again when they change.
func (n *Node) Dial(o client.Options) (*client.Client, error) {
	o, err := o.WithToken(&n.Connection)
	if err != nil {
		return nil, fmt.Errorf("--%w", err)
	}
	secure, err := client.Secure(n.Server)
	if err != nil {
		return nil, fmt.Errorf("--server: %w", err)
	}
	if o.TLSFiles, err = n.TLSFiles(secure); err != nil {
		return nil, fmt.Errorf("--%w", err)
	}
	return client.Dial(n.Server, o)
}

// Private reports whether only users of this machine can be behind the nodes: they are on it, and
// the connection has no credentials.
func (n *Node) Private() bool {
	return n.TokenFile == "" && n.Cert == "" &&
		!slices.ContainsFunc(strings.Split(n.Server, ","), func(server string) bool { return !address.OnThisMachine(server) })
}

// Ready returns an error if a worker could do nothing with runlog: it does not answer, or it
// refuses the credentials.
func (n *Node) Ready(ctx context.Context, log *client.Client) error {
	who, err := log.WhoAmI(ctx)
	if e, ok := errors.AsType[*client.Error](err); ok && e.Code == codes.Unimplemented && e.Reason != "" {
		return nil // An older server does not know the call.
	}
	if err != nil {
		return fmt.Errorf("cannot ask runlog whose credentials these are: %w", err)
	}
	for _, role := range []runlogv1.Role_Value{runlogv1.Role_PRODUCER, runlogv1.Role_READER} {
		if !slices.Contains(who.GetRoles(), role) {
			return fmt.Errorf("%s has the roles %v, and a worker needs PRODUCER and READER: make a token with \"runlog token create NAME --role producer --role reader\"",
				who.GetName(), who.GetRoles())
		}
	}
	return nil
}

// Remedy returns what to do about an error of runlog or of the connection; empty: the error says
// it, or it is of something else.
func (n *Node) Remedy(err error) string {
	e, ok := errors.AsType[*client.Error](err)
	switch {
	case !ok:
		return ""
	case e.Reason == client.ReasonUnauthenticated:
		return "name the file of a token that is valid with --token-file"
	case e.Reason == client.ReasonPermissionDenied:
		return fmt.Sprintf("\"runlog whoami\" shows the roles and the tenants of a token, and %s which ones the command needs", n.Page)
	case e.Reason != "": // The message of the server has the remedy.
		return ""
	case e.Code == codes.Unavailable && strings.Contains(e.Message, "server preface"):
		return fmt.Sprintf("--server is %s, which speaks no gRPC in plain text: name the --grpc-listen of a node (port 7410 by default), with https:// before it if the node has --tls-cert", n.Server)
	case e.Code == codes.Unavailable || e.Code == codes.DeadlineExceeded:
		return fmt.Sprintf("--server is %s: start a node with \"runlog serve\", or name another one", n.Server)
	case e.Code == codes.Unimplemented:
		return fmt.Sprintf("--server is %s, which is no node of runlog, or one that is too old", n.Server)
	}
	return ""
}
