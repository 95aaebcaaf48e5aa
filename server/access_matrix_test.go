package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/auth"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// matrixGolden has the table of access. UPDATE_MATRIX=1 writes it again; read it before a commit.
const matrixGolden = "testdata/access_matrix.golden"

// served is a method as the node serves it.
type served struct {
	protoreflect.MethodDescriptor
	policy *runlogv1.Policy
	routes [][2]string // HTTP method and path
}

func (m *served) full() string { return fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name()) }

// line is the row of the method in the table of access.
func (m *served) line() string {
	var roles []string
	for _, r := range m.policy.Roles {
		roles = append(roles, r.String())
	}
	tenant := "whole cluster"
	switch t := m.policy.Tenant.(type) {
	case *runlogv1.Policy_TenantField:
		tenant = "tenant in " + t.TenantField
	case *runlogv1.Policy_RunField:
		tenant = "run in " + t.RunField
	case *runlogv1.Policy_AllTenants:
		tenant = "all tenants"
	}
	return fmt.Sprintf("%s.%s | %s | %s", m.Parent().Name(), m.Name(), strings.Join(roles, " "), tenant)
}

var pathVariable = regexp.MustCompile(`\{[^}]*\}`)

// servedMethods returns every method of every service that a node registers.
func servedMethods(t testing.TB) (list []*served) {
	for _, s := range server.Descs() {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(s.ServiceName))
		if err != nil {
			t.Fatal(err)
		}
		methods := d.(protoreflect.ServiceDescriptor).Methods()
		for i := range methods.Len() {
			m := &served{MethodDescriptor: methods.Get(i)}
			m.policy, _ = proto.GetExtension(m.Options(), runlogv1.E_Policy).(*runlogv1.Policy)
			rule, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
			for _, r := range append(rule.GetAdditionalBindings(), rule) {
				for method, path := range map[string]string{"GET": r.GetGet(), "POST": r.GetPost(), "PUT": r.GetPut(), "PATCH": r.GetPatch(), "DELETE": r.GetDelete()} {
					if path != "" {
						m.routes = append(m.routes, [2]string{method, pathVariable.ReplaceAllString(strings.ReplaceAll(path, "{tenant_id}", "tenant"), "x")})
					}
				}
			}
			list = append(list, m)
		}
	}
	return list
}

// TestMatrixSEC3 calls every method with every role, for some tenants and for all, over gRPC and
// HTTP, directly and through a follower: the table of access decides, and nothing else lets a
// caller in.
func TestMatrixSEC3(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes one call at a time, thousands of them")
	}
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		methods := servedMethods(t)
		var table strings.Builder
		for _, m := range methods {
			fmt.Fprintln(&table, m.line())
		}
		if os.Getenv("UPDATE_MATRIX") != "" {
			if err := os.WriteFile(matrixGolden, []byte(table.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		golden, err := os.ReadFile(matrixGolden)
		if err != nil || string(golden) != table.String() {
			t.Errorf("the table of access has changed: read it, and run the test with UPDATE_MATRIX=1\n%s", table.String())
		}
		bubble.Run(t, "direct", func(t testing.TB) {
			var root string
			n := servertest.Start(t, func(o *server.Options) { root = servertest.Secured(o) })
			for _, c := range matrixCallers(n, root) {
				for _, m := range methods {
					matches(n, m, c)
				}
			}
		})
		bubble.Run(t, "forwarded", func(t testing.TB) {
			all, root := servertest.SecuredNodes(t)
			for _, c := range matrixCallers(all[0], root) {
				for _, m := range methods {
					// A call may move the leadership.
					follower := all.Followers()[0]
					matches(follower, m, c)
					for _, route := range m.routes {
						if c.want(m) == "" {
							continue
						}
						code, body := callHTTP(follower, route, c.token)
						if was, direct := callHTTP(all.Leader(), route, c.token); code != was || !bytes.Equal(body, direct) {
							t.Errorf("%s %s by %s: HTTP %d %s through a follower, %d %s at the leader", route[0], route[1], c.role, code, body, was, direct)
						}
					}
				}
			}
		})
	})
}

// matrixCaller is a caller with one role, for one tenant or for all. Without a token it has no
// identity.
type matrixCaller struct {
	token string
	role  runlogv1.Role_Value
	all   bool
}

// matrixCallers returns a caller of each kind.
func matrixCallers(n *servertest.Node, root string) []matrixCaller {
	n.T.Helper()
	callers := []matrixCaller{{}}
	for _, role := range auth.AllRoles.List() {
		some := n.Token(root, fmt.Sprint("some-", role), []string{"tenant"}, role)
		all := n.Token(root, fmt.Sprint("all-", role), []string{"*"}, role)
		callers = append(callers, matrixCaller{some, role, false}, matrixCaller{all, role, true})
	}
	return callers
}

// want returns why the table of access does not let the caller call a method; empty: it does.
func (c *matrixCaller) want(m *served) contract.Reason {
	switch {
	case c.token == "":
		return contract.ReasonUnauthenticated
	case !slices.Contains(m.policy.Roles, c.role), m.policy.GetAllTenants() && !c.all:
		return contract.ReasonPermissionDenied
	}
	return ""
}

// matches requires that the node lets a caller in as the table of access says, over gRPC and HTTP.
func matches(n *servertest.Node, m *served, c matrixCaller) {
	n.T.Helper()
	want := c.want(m)
	if got := admitted(n, m, c.token); got != want {
		n.T.Errorf("%s by %s, all tenants %v: %q, want %q", m.full(), c.role, c.all, got, want)
	}
	for _, route := range m.routes {
		if got := admittedHTTP(n, route, c.token); got != want {
			n.T.Errorf("%s %s by %s, all tenants %v: %q, want %q", route[0], route[1], c.role, c.all, got, want)
		}
	}
}

// denial returns a reason for which a caller is not let in; empty for all else.
func denial(reason contract.Reason) contract.Reason {
	if reason == contract.ReasonUnauthenticated || reason == contract.ReasonPermissionDenied {
		return reason
	}
	return ""
}

// admitted calls a method over gRPC with an empty request, and returns why the caller is not let
// in.
func admitted(n *servertest.Node, m *served, token string) contract.Reason {
	n.T.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), 10*time.Second)
	defer cancel()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	req, resp := dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output())
	err := error(nil)
	if !m.IsStreamingClient() && !m.IsStreamingServer() {
		err = n.Conn.Invoke(ctx, m.full(), req, resp)
	} else {
		var stream grpc.ClientStream
		stream, err = n.Conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: m.IsStreamingClient(), ServerStreams: true}, m.full())
		if err == nil && !m.IsStreamingClient() {
			err = stream.SendMsg(req)
		}
		if err == nil {
			err = stream.CloseSend()
		}
		if err == nil {
			err = stream.RecvMsg(resp)
		}
	}
	if err == nil || errors.Is(err, io.EOF) {
		return ""
	}
	return denial(servertest.RefusalOf(n.T, err).Reason)
}

// admittedHTTP is admitted over HTTP.
func admittedHTTP(n *servertest.Node, route [2]string, token string) contract.Reason {
	n.T.Helper()
	code, body := callHTTP(n, route, token)
	if code != http.StatusUnauthorized && code != http.StatusForbidden {
		return ""
	}
	var refused struct {
		Details []struct{ Reason contract.Reason }
	}
	if err := json.Unmarshal(body, &refused); err != nil || len(refused.Details) == 0 {
		n.T.Fatalf("%s %s: HTTP %d without a reason: %v", route[0], route[1], code, err)
	}
	return denial(refused.Details[0].Reason)
}

// callHTTP makes a call with an empty request, and returns its status, and the body of a refusal.
func callHTTP(n *servertest.Node, route [2]string, token string) (code int, refusal []byte) {
	n.T.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), 10*time.Second)
	defer cancel()
	var header []string
	if token != "" {
		header = []string{"Authorization", "Bearer " + token}
	}
	body := "{}"
	if route[0] == http.MethodGet || route[0] == http.MethodDelete {
		body = ""
	}
	resp := n.HTTPStream(ctx, route[0], route[1], body, header...)
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return resp.StatusCode, nil // It may be a stream.
	}
	refusal, err := io.ReadAll(resp.Body)
	if err != nil {
		n.T.Fatal(err)
	}
	return resp.StatusCode, refusal
}
