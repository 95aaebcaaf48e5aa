package access_test

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// TestTokensOfOneNameSEC8: a token's name can be given again once the token is revoked. Each record
// says which token appended it, at the leader and through a follower, wherever records are read,
// inside its digest. The token in a node's file has no id, and no producer names a token.
func TestTokensOfOneNameSEC8(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all, root := servertest.SecuredNodes(t)
		nodes := []*servertest.Node{all.Leader(), all.Followers()[0]}
		var want, identities []string
		for i, n := range nodes {
			made, err := n.Access().CreateToken(n.Bearing(root), &runlogv1.CreateTokenRequest{
				Name: "ci", Tenants: []string{"tenant"}, Roles: []runlogv1.Role_Value{runlogv1.Role_PRODUCER},
			})
			if err != nil {
				t.Fatal(err)
			}
			_, err = n.Events.AppendEvents(n.Bearing(made.Token), &runlogv1.AppendEventsRequest{RunId: "run", Events: servertest.Steps(string(rune('a'+i)), 2)})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := n.Access().RevokeToken(n.Bearing(root), &runlogv1.RevokeTokenRequest{TokenId: made.TokenId}); err != nil {
				t.Fatal(err)
			}
			want, identities = append(want, made.TokenId, made.TokenId), append(identities, "token:ci", "token:ci")
		}
		n := nodes[1]
		_, err := n.Events.AppendEvents(n.Bearing(root), &runlogv1.AppendEventsRequest{RunId: "run", Events: servertest.Steps("c", 1)})
		if err != nil {
			t.Fatal(err)
		}
		want, identities = append(want, ""), append(identities, "token:admin-token-file")
		n.HTTP("POST", "/v1/runs/run/events:append", `{"events":[`+strings.Replace(servertest.HTTPEvent("h"), "{", `{"appendedByTokenId":"`+want[0]+`",`, 1)+`]}`,
			"Authorization", "Bearer "+root).Refused(t, contract.ReasonInvalidArgumentField)

		for where, records := range readEverywhere(t, n, root, len(want)) {
			var ids, names []string
			for _, r := range records {
				ids, names = append(ids, r.GetAppendedByTokenId()), append(names, r.GetAppendedBy())
			}
			if !slices.Equal(ids, want) || !slices.Equal(names, identities) {
				t.Errorf("%s: by %q with the tokens %q, want %q with %q", where, names, ids, identities, want)
			}
			servertest.VerifyChain(t, records)
			other := proto.CloneOf(records[0])
			other.AppendedByTokenId = &want[2]
			if servertest.AuditRun(append([]*runlogv1.EventRecord{other}, records[1:]...)) == nil {
				t.Errorf("%s: the token's id is not in the digest", where)
			}
		}
		body := string(n.HTTP("GET", "/v1/runs/run/events", "", "Authorization", "Bearer "+root).Body)
		if text := `"appendedBy":"token:ci","appendedByTokenId":"` + want[2] + `"`; !strings.Contains(body, text) {
			t.Errorf("over HTTP: %s, want %s in it", body, text)
		}
		verified, err := n.Audit.VerifyRun(n.Bearing(root), &runlogv1.VerifyRunRequest{RunId: "run"})
		if err != nil || !verified.Ok {
			t.Errorf("VerifyRun: %v, %v", verified, err)
		}
	})
}

// readEverywhere returns the first events of the run "run" as each kind of read gives them.
func readEverywhere(t testing.TB, n *servertest.Node, token string, count int) map[string][]*runlogv1.EventRecord {
	t.Helper()
	ctx := n.Bearing(token)
	list, err := n.Events.ListEvents(ctx, &runlogv1.ListEventsRequest{RunId: "run"})
	if err != nil {
		t.Fatal(err)
	}
	window, err := n.Audit.QueryEvents(ctx, &runlogv1.QueryEventsRequest{RunId: "run"})
	if err != nil {
		t.Fatal(err)
	}
	read, err := n.Events.ReadEvents(ctx, &runlogv1.ReadEventsRequest{RunId: "run"})
	watch, wrong := n.Projection.WatchRun(ctx, &runlogv1.WatchRunRequest{RunId: "run", View: runlogv1.WatchView_EVENT})
	export, bad := n.Audit.ExportEvents(ctx, &runlogv1.ExportEventsRequest{RunId: "run"})
	if err := errors.Join(err, wrong, bad); err != nil {
		t.Fatal(err)
	}
	return map[string][]*runlogv1.EventRecord{
		"ListEvents": list.Events, "QueryEvents": window.Events,
		"ReadEvents":   received(t, read, count, (*runlogv1.ReadEventsResponse).GetEvents),
		"WatchRun":     received(t, watch, count, func(m *runlogv1.WatchRunResponse) []*runlogv1.EventRecord { return m.GetEvents().GetEvents() }),
		"ExportEvents": received(t, export, count, (*runlogv1.ExportEventsResponse).GetEvents),
	}
}

// received returns the first events of a stream.
func received[M any](t testing.TB, stream grpc.ServerStreamingClient[M], count int, events func(*M) []*runlogv1.EventRecord) (all []*runlogv1.EventRecord) {
	t.Helper()
	for len(all) < count {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, events(m)...)
	}
	return all
}
