package servertest

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/auth"
	"runlog/testbed/bubble"
)

// Secured makes a node demand authentication. It returns a token with every right, for that node.
func Secured(o *server.Options) (root string) {
	root, hash := auth.NewToken()
	o.Authenticate, o.AdminToken = true, hash
	o.CheckpointInterval = time.Hour // It makes keys by itself.
	return root
}

// Bearing returns the context of a call with a token.
func (n *Node) Bearing(token string) context.Context {
	return metadata.AppendToOutgoingContext(n.Context(), "authorization", "Bearer "+token)
}

// Access returns a client of AccessService.
func (n *Node) Access() runlogv1.AccessServiceClient { return runlogv1.NewAccessServiceClient(n.Conn) }

// Token makes a token over gRPC.
func (n *Node) Token(root, name string, tenants []string, roles ...runlogv1.Role_Value) string {
	n.T.Helper()
	resp, err := n.Access().CreateToken(n.Bearing(root), &runlogv1.CreateTokenRequest{Name: name, Tenants: tenants, Roles: roles})
	if err != nil {
		n.T.Fatal(err)
	}
	return resp.Token
}

// SecuredNodes starts a cluster whose nodes demand authentication, with a token that has every
// right. All nodes can forward calls.
func SecuredNodes(t testing.TB) (all Nodes, root string) {
	t.Helper()
	root, hash := auth.NewToken()
	all = StartNodes(t, 3, func(_ int, o *server.Options) {
		o.Authenticate, o.AdminToken, o.CheckpointInterval = true, hash, time.Hour
	})
	for _, n := range all {
		bubble.Until(t, "the members have a secret", func() bool {
			_, err := n.Access().SetTenantLimits(n.Bearing(root), &runlogv1.SetTenantLimitsRequest{TenantId: "tenant", Limits: &runlogv1.TenantLimits{}})
			return err == nil
		})
	}
	return all, root
}

// FakeToken looks like a token of runlog and is none.
const FakeToken = "rl" + "k_" + "aB3dE5gH7jK9mN1pQ2sT4vW6yZ8bC0eF2hJ4lM6oP8r"
