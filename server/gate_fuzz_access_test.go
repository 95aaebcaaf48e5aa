package server_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/rpc"
	"runlog/server/servertest"
)

// FuzzGateHeader sends one header, over HTTP and gRPC, alone and together with valid credentials.
// TOKEN in its value is a valid token. Only the one header Authorization lets a caller in, and no
// header changes its identity (SEC-2).
func FuzzGateHeader(f *testing.F) {
	for _, h := range [][2]string{
		{"Authorization", "Bearer TOKEN"}, {"authorization", "bearer TOKEN"}, {"Grpc-Metadata-Authorization", "Bearer TOKEN"},
		{"Runlog-Passport-Bin", "AAAA"}, {"Runlog-Client-Certificate-Bin", "AAAA"}, {"X-Forwarded-User", "admin"}, {"Proxy-Authorization", "Bearer TOKEN"},
		{"Cookie", "token=TOKEN"}, {":authority", "x"}, {"X-Http-Method-Override", "POST"}, {"Grpc-Timeout", "1n"},
	} {
		f.Add(h[0], h[1], false)
		f.Add(h[0], h[1], true)
	}
	var root string
	g := openGates(f, func(o *server.Options) { root = servertest.Secured(o) })
	f.Fuzz(func(t *testing.T, name, value string, known bool) {
		value = strings.ReplaceAll(value, "TOKEN", root)
		credentials := strings.EqualFold(name, "authorization")
		scheme, text, _ := strings.Cut(value, " ")
		let := known != credentials && (known || strings.EqualFold(scheme, "Bearer") && strings.TrimSpace(text) == root)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/whoami", nil)
		r.Header.Add(textproto.CanonicalMIMEHeaderKey(name), value)
		md := metadata.Pairs(name, value)
		if known {
			r.Header.Add("Authorization", "Bearer "+root)
			md.Append("authorization", "Bearer "+root)
		}
		w := httptest.NewRecorder()
		g.http.ServeHTTP(w, r)
		if w.Code == http.StatusGatewayTimeout {
			return // The header has shortened the deadline.
		}
		m, reason := answered(t, w)
		invalid := reason == contract.ReasonInvalidArgumentField // Such as a deadline that is none.
		if reason == "" && (!let || m["name"] != "token:admin-token-file") || reason != "" && !invalid && (let || reason != contract.ReasonUnauthenticated) {
			t.Fatalf("%q: %q beside a token %v over HTTP: %s, %v", name, value, known, reason, m)
		}
		resp, err := runlogv1.NewAccessServiceClient(g.conn).WhoAmI(metadata.NewOutgoingContext(t.Context(), md), &runlogv1.WhoAmIRequest{})
		switch code := status.Code(err); {
		case code == codes.Internal && refusalOfClient(err): // gRPC's client does not send it.
		case code == codes.DeadlineExceeded:
		case let && (err != nil || resp.Name != "token:admin-token-file"), !let && requireReason(t, err) != contract.ReasonUnauthenticated:
			t.Fatalf("%q: %q beside a token %v over gRPC: %v, %v", name, value, known, resp, err)
		}
	})
}

// refusalOfClient reports whether gRPC's client has refused a header.
func refusalOfClient(err error) bool {
	return len(status.Convert(err).Details()) == 0 && strings.Contains(err.Error(), "header")
}

// cursorCall is a call with a token in its request, by a caller of the tenant "own".
type cursorCall struct {
	domain rpc.TokenDomain
	kind   rpc.TokenKind
	issued string
	ask    func(ctx context.Context, token string) (proto.Message, error)
}

// FuzzGateCursor sends any token of a page or a watch, and tokens with a right checksum whose body
// is changed. A token that was not issued is refused; whatever it says, it shows no other tenant
// and makes no internal error (SEC-4, READ-3, WATCH-2).
func FuzzGateCursor(f *testing.F) {
	var root string
	g := openGates(f, func(o *server.Options) { root = servertest.Secured(o) })
	calls := g.cursorCalls(f, root)
	for which, c := range calls {
		_, body, ok := c.domain.Open(c.issued)
		if !ok {
			f.Fatalf("call %d: the domain of %q is another", which, c.issued)
		}
		f.Add(uint8(which), uint8(0), []byte(c.issued), false)
		f.Add(uint8(which), uint8(0), []byte(strings.ToUpper(c.issued)), false)
		for _, keep := range []int{0, 8, 16, len(body)} {
			f.Add(uint8(which), uint8(min(keep, len(body))), []byte{}, true)
			f.Add(uint8(which), uint8(min(keep, len(body))), []byte("\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), true)
		}
	}
	f.Fuzz(func(t *testing.T, which, keep uint8, text []byte, sealed bool) {
		c := calls[int(which)%len(calls)]
		token := string(text)
		if sealed {
			_, body, _ := c.domain.Open(c.issued)
			token = c.domain.Seal(c.kind, append(body[:min(int(keep), len(body)):len(body)][:min(int(keep), len(body))], text...))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		answer, err := c.ask(ctx, token)
		switch code := status.Code(err); {
		case err == nil && !sealed && token != "" && token != c.issued:
			t.Fatalf("call %d takes %q, which was not issued: %v", which, token, answer)
		case err == nil:
			shown, err := json.Marshal(answer)
			if err != nil || strings.Contains(string(shown), "foreign") {
				t.Fatalf("call %d with %q shows %s, %v", which, token, shown, err)
			}
		case code == codes.DeadlineExceeded || code == codes.Canceled:
		// It waits for what is not there yet.
		case code == codes.Internal && strings.Contains(err.Error(), "invalid UTF-8"):
		// gRPC's client does not send it.
		default:
			requireReason(t, err)
		}
	})
}

// cursorCalls returns a call of each kind of token. The node has runs of the caller's tenant and
// foreign ones.
func (g *gates) cursorCalls(f *testing.F, root string) []cursorCall {
	f.Helper()
	as := func(ctx context.Context, token string) context.Context {
		return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	events, access := runlogv1.NewEventServiceClient(g.conn), runlogv1.NewAccessServiceClient(g.conn)
	for _, run := range []string{"own-1", "foreign-1", "own-2", "foreign-2", "own-3"} {
		tenant, _, _ := strings.Cut(run, "-")
		e := servertest.NewEvent("Noted", func(e *runlogv1.EventWrite) { e.TenantId = tenant })
		if _, err := events.AppendEvents(as(f.Context(), root), &runlogv1.AppendEventsRequest{RunId: run, Events: []*runlogv1.EventWrite{e}}); err != nil {
			f.Fatal(err)
		}
	}
	own := ""
	for _, name := range []string{"own", "another"} {
		made, err := access.CreateToken(as(f.Context(), root), &runlogv1.CreateTokenRequest{
			Name: name, Tenants: []string{"own"}, Roles: []runlogv1.Role_Value{runlogv1.Role_READER, runlogv1.Role_AUDITOR},
		})
		if err != nil {
			f.Fatal(err)
		}
		own = made.Token
	}
	in := g.server.Internals().Replica.Store().Incarnation()
	projections := runlogv1.NewProjectionServiceClient(g.conn)
	watched := func(ctx context.Context, req *runlogv1.WatchRunsRequest) (proto.Message, string, error) {
		stream, err := projections.WatchRuns(as(ctx, own), req)
		if err != nil {
			return nil, "", err
		}
		resp, err := stream.Recv()
		return resp, resp.GetResumeToken(), err
	}
	one := func(ctx context.Context, token string) (proto.Message, string, error) {
		stream, err := projections.WatchRun(as(ctx, own), &runlogv1.WatchRunRequest{RunId: "own-1", ResumeToken: token})
		if err != nil {
			return nil, "", err
		}
		resp, err := stream.Recv()
		return resp, resp.GetResumeToken(), err
	}
	return []cursorCall{
		cursorOf(f, rpc.NewTokenDomain("list of runs", in), rpc.TokenPage, func(ctx context.Context, token string) (proto.Message, string, error) {
			resp, err := runlogv1.NewRunServiceClient(g.conn).ListRuns(as(ctx, own), &runlogv1.ListRunsRequest{PageSize: 1, PageToken: token})
			return resp, resp.GetNextPageToken(), err
		}),
		cursorOf(f, rpc.NewTokenDomain("audit window", in), rpc.TokenWindow, func(ctx context.Context, token string) (proto.Message, string, error) {
			resp, err := runlogv1.NewAuditServiceClient(g.conn).QueryEvents(as(ctx, own), &runlogv1.QueryEventsRequest{PageSize: 1, PageToken: token})
			return resp, resp.GetNextPageToken(), err
		}),
		cursorOf(f, rpc.NewTokenDomain("watch of a run", in, "own-1"), rpc.TokenWatch, one),
		cursorOf(f, rpc.NewTokenDomain("watch of runs", in, "own", "", "", "", "", "", "0"), rpc.TokenRuns, func(ctx context.Context, token string) (proto.Message, string, error) {
			return watched(ctx, &runlogv1.WatchRunsRequest{IncludeExisting: token == "", ResumeToken: token})
		}),
		cursorOf(f, rpc.NewTokenDomain("watch of events of runs", in, "own", "", "", "", "", ""), rpc.TokenRunsEvents, func(ctx context.Context, token string) (proto.Message, string, error) {
			return watched(ctx, &runlogv1.WatchRunsRequest{View: runlogv1.WatchView_EVENT, ResumeToken: token})
		}),
	}
}

// cursorOf returns the call, with a token that it has issued.
func cursorOf(f *testing.F, domain rpc.TokenDomain, kind rpc.TokenKind, ask func(context.Context, string) (proto.Message, string, error)) cursorCall {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), servertest.Patience)
	defer cancel()
	_, issued, err := ask(ctx, "")
	for ; issued == ""; _, issued, err = ask(ctx, "") { // A list waits for its projection.
		if ctx.Err() != nil {
			f.Fatalf("no token of kind %d: %v", kind, err)
		}
	}
	return cursorCall{domain, kind, issued, func(ctx context.Context, token string) (proto.Message, error) {
		m, _, err := ask(ctx, token)
		return m, err
	}}
}
