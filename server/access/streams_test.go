package access_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestStreamsAreCheckedAgainSEC5: a watch and a stream of appends that were opened with a token end
// once the token is revoked, also while nothing is sent.
func TestStreamsAreCheckedAgainSEC5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var root string
		n := servertest.Start(t, func(o *server.Options) { root = servertest.Secured(o) })
		often := *n.Server.Internals().Access.Load()
		often.CheckEvery = 20 * time.Millisecond
		n.Server.Internals().Access.Store(&often)
		token := n.Token(root, "engine", []string{"tenant"}, runlogv1.Role_PRODUCER, runlogv1.Role_READER)
		appends, err := n.Events.AppendStream(n.Bearing(token))
		if err != nil {
			t.Fatal(err)
		}
		if err := appends.Send(&runlogv1.AppendEventsRequest{RunId: "run", Events: servertest.Steps("a", 1)}); err != nil {
			t.Fatal(err)
		}
		if resp, err := appends.Recv(); err != nil || resp.Status.GetCode() != 0 {
			t.Fatalf("%v, %v", resp, err)
		}
		watch, err := n.Projection.WatchRuns(n.Bearing(token), &runlogv1.WatchRunsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if m, err := watch.Recv(); err != nil || m.GetCaughtUp() == nil {
			t.Fatalf("%v, %v", m, err)
		}
		list, err := n.Access().ListTokens(n.Bearing(root), &runlogv1.ListTokensRequest{})
		if err != nil || len(list.Tokens) != 1 {
			t.Fatalf("%v, %v", list, err)
		}
		if _, err := n.Access().RevokeToken(n.Bearing(root), &runlogv1.RevokeTokenRequest{TokenId: list.Tokens[0].TokenId}); err != nil {
			t.Fatal(err)
		}
		_, err = appends.Recv()
		servertest.Refused(t, err, contract.ReasonUnauthenticated)
		for err = nil; err == nil; {
			_, err = watch.Recv() // heartbeats
		}
		servertest.Refused(t, err, contract.ReasonUnauthenticated)
	})
}

// TestNoPageAfterRevocationSEC5: a reader that takes the pages of a run or of an export slowly gets
// none that the node reads after the token was revoked, or has expired.
func TestNoPageAfterRevocationSEC5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var root string
		n := servertest.Start(t, func(o *server.Options) { root = servertest.Secured(o) })
		often := *n.Server.Internals().Access.Load()
		often.CheckEvery = 20 * time.Millisecond
		n.Server.Internals().Access.Store(&often)
		const events, batch = 4096, 256
		for from := 0; from < events; from += batch {
			list := make([]*runlogv1.EventWrite, batch)
			for i := range list {
				list[i] = servertest.NewEvent("Noted", servertest.Step(fmt.Sprint(from+i)), servertest.Payload(`{"text":"`+strings.Repeat("x", 4<<10)+`"}`))
			}
			if _, err := n.Events.AppendEvents(n.Bearing(root), &runlogv1.AppendEventsRequest{RunId: "run", Events: list}); err != nil {
				t.Fatal(err)
			}
		}
		reads := map[string]func(context.Context) (func() (int, error), error){
			"ReadEvents": func(ctx context.Context) (func() (int, error), error) {
				stream, err := n.Events.ReadEvents(ctx, &runlogv1.ReadEventsRequest{RunId: "run"})
				return func() (int, error) {
					page, err := stream.Recv()
					return len(page.GetEvents()), err
				}, err
			},
			"ExportEvents": func(ctx context.Context) (func() (int, error), error) {
				stream, err := n.Audit.ExportEvents(ctx, &runlogv1.ExportEventsRequest{TenantId: "tenant"})
				return func() (int, error) {
					page, err := stream.Recv()
					return len(page.GetEvents()), err
				}, err
			},
		}
		for call, open := range reads {
			for _, how := range []string{"revoked", "expired"} {
				req := &runlogv1.CreateTokenRequest{Name: call + how, Tenants: []string{"tenant"}, Roles: []runlogv1.Role_Value{runlogv1.Role_READER, runlogv1.Role_AUDITOR}}
				if how == "expired" {
					req.ExpireTime = timestamppb.New(time.Now().Add(2 * time.Second))
				}
				token, err := n.Access().CreateToken(n.Bearing(root), req)
				if err != nil {
					t.Fatal(err)
				}
				next, err := open(n.Bearing(token.Token))
				if err != nil {
					t.Fatal(err)
				}
				got, err := next()
				if err != nil {
					t.Fatalf("%s: %v", call, err)
				}
				if how == "expired" {
					time.Sleep(time.Until(req.ExpireTime.AsTime()))
				} else if _, err := n.Access().RevokeToken(n.Bearing(root), &runlogv1.RevokeTokenRequest{TokenId: token.TokenId}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * often.CheckEvery) // It reads on only then.
				for err == nil {
					var more int
					more, err = next()
					got += more
				}
				servertest.Refused(t, err, contract.ReasonUnauthenticated)
				if got >= events {
					t.Errorf("%s, %s: all %d events were sent", call, how, got)
				}
			}
		}
	})
}

// TestStreamedForeignSEC4: a request of a stream that says what is wrong with it says the same of a
// run of a foreign tenant and of none.
func TestStreamedForeignSEC4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all, root := servertest.SecuredNodes(t)
		owner := all[0].Token(root, "owner", []string{"tenant"}, runlogv1.Role_PRODUCER)
		stranger := all[0].Token(root, "stranger", []string{"other"}, runlogv1.Role_PRODUCER)
		if _, err := all[0].Events.AppendEvents(all[0].Bearing(owner), &runlogv1.AppendEventsRequest{RunId: "secret", Events: []*runlogv1.EventWrite{servertest.NewEvent("RunStarted")}}); err != nil {
			t.Fatal(err)
		}
		foreign, invalid := servertest.NewEvent("RunStarted"), servertest.NewEvent("RunStarted")
		invalid.PlanId = "a|b"
		for _, n := range all {
			stream, err := n.Events.AppendStream(n.Bearing(stranger))
			if err != nil {
				t.Fatal(err)
			}
			for what, events := range map[string][]*runlogv1.EventWrite{"of a foreign tenant": {foreign}, "invalid": {invalid}, "empty": nil} {
				var got [2]string
				for i, run := range []string{"secret", "absent"} {
					if err := stream.Send(&runlogv1.AppendEventsRequest{RunId: run, Events: events}); err != nil {
						t.Fatal(err)
					}
					answer, err := stream.Recv()
					if err != nil {
						t.Fatal(err)
					}
					got[i] = strings.ReplaceAll(answer.String(), "absent", "secret")
				}
				if got[0] != got[1] {
					t.Errorf("%s: a foreign run gets %s\nan absent one %s", what, got[0], got[1])
				}
			}
		}
	})
}
