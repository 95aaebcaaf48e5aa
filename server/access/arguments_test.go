package access_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/rpc"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// logged returns what the access log of today says of the calls whose methods end in a verb: the
// decision, the token of the caller, the fields of the request, and those of the answer.
func logged(n *servertest.Node, auditor, verb string) (list []string) {
	n.T.Helper()
	resp, err := n.Events.ListEvents(n.Bearing(auditor), &runlogv1.ListEventsRequest{RunId: rpc.AccessRuns + time.Now().UTC().Format(time.DateOnly)})
	if err != nil {
		n.T.Fatal(err)
	}
	for _, e := range resp.Events {
		var d struct {
			Method, Decision, TokenID string
			Request, Answer           map[string]string
		}
		if err := json.Unmarshal(e.GetPayloadJson(), &d); err != nil {
			n.T.Fatal(err)
		}
		if strings.HasSuffix(d.Method, "/"+verb) {
			list = append(list, fmt.Sprint(d.Decision, " ", d.TokenID, d.Request, " ", d.Answer))
		}
	}
	return list
}

// TestAccessLogArgumentsSEC11: the access log has the arguments of administrative calls, the ids of
// what they made, and the window, the filter and the count of each query and export that succeeded.
func TestAccessLogArgumentsSEC11(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		var root string
		n := servertest.Start(t, func(o *server.Options) { root = servertest.Secured(o) })
		auditor := n.Token(root, "auditor", []string{rpc.AccessTenant, "tenant"}, runlogv1.Role_READER, runlogv1.Role_AUDITOR, runlogv1.Role_PRODUCER)
		ctx := n.Bearing(root)
		want := func(verb string, list ...string) {
			t.Helper()
			if got := logged(n, auditor, verb); !slices.Equal(got, list) {
				t.Errorf("%s: recorded\n%s\nwant\n%s", verb, strings.Join(got, "\n"), strings.Join(list, "\n"))
			}
		}
		tokens, err := n.Access().ListTokens(ctx, &runlogv1.ListTokensRequest{})
		if err != nil {
			t.Fatal(err)
		}
		id := tokens.Tokens[0].TokenId
		asked := `map[name:auditor roles:["READER","AUDITOR","PRODUCER"] tenants:["runlog","tenant"]]`
		want("CreateToken", "ALLOWED "+asked+" map[]", "DONE "+asked+" map[tokenId:"+id+"]")
		if _, err := n.Access().SetTenantLimits(ctx, &runlogv1.SetTenantLimitsRequest{TenantId: "tenant", Limits: &runlogv1.TenantLimits{EventsPerSecond: 7}}); err != nil {
			t.Fatal(err)
		}
		want("SetTenantLimits", `ALLOWED map[limits:{"eventsPerSecond":"7"} tenantId:tenant] map[]`)
		made, err := n.Clusters().CreateJoinToken(ctx, &runlogv1.CreateJoinTokenRequest{Uses: new(uint32(2))})
		if err != nil {
			t.Fatal(err)
		}
		want("CreateJoinToken", "ALLOWED map[uses:2] map[]", "DONE map[uses:2] map[tokenId:"+made.TokenId+"]")

		asked = "map[destination:/backups/main]"
		begin := backUp(ctx, t, n, "/backups/main")
		want("Backup", "ALLOWED "+asked+" map[]", "DONE "+asked+" map[begin:"+begin+"]")
		failed, err := n.Clusters().Backup(ctx, &runlogv1.BackupRequest{Destination: "elsewhere", Known: []*runlogv1.BackupKnown{{Files: []*runlogv1.BackupFile{{}}}}})
		if err == nil {
			_, err = failed.Recv()
		}
		servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
		want("Backup", "ALLOWED "+asked+" map[]", "DONE "+asked+" map[begin:"+begin+"]", "ALLOWED map[destination:elsewhere] map[]")

		_, err = n.Events.AppendEvents(n.Bearing(auditor), &runlogv1.AppendEventsRequest{RunId: "run", Events: []*runlogv1.EventWrite{servertest.NewEvent("RunStarted")}})
		if err != nil {
			t.Fatal(err)
		}
		for _, tenant := range []string{"tenant", "foreign"} { // The latter is refused.
			_, _ = n.Audit.QueryEvents(n.Bearing(auditor), &runlogv1.QueryEventsRequest{TenantId: tenant, RunId: "run", Types: []string{"RunStarted"}})
		}
		if got := logged(n, auditor, "QueryEvents"); len(got) != 2 || got[1] != "DENIED "+id+"map[] map[]" ||
			!strings.HasPrefix(got[0], "DONE "+id+`map[runId:run tenantId:tenant types:["RunStarted"]] map[count:1 from:1970-01-01T00:00:00Z to:2030-01-01T`) {
			t.Errorf("queries: recorded %q", got)
		}
		stream, err := n.Audit.ExportEvents(n.Bearing(auditor), &runlogv1.ExportEventsRequest{TenantId: "tenant"})
		for err == nil {
			_, err = stream.Recv()
		}
		if !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if got := logged(n, auditor, "ExportEvents"); len(got) != 1 ||
			!strings.HasPrefix(got[0], "DONE "+id+`map[tenantId:tenant] map[summary:{"count":"1",`) {
			t.Errorf("exports: recorded %q", got)
		}

		req, err := http.NewRequestWithContext(n.Context(), http.MethodPost, "http://"+n.Server.Addresses().Admin+"/import",
			strings.NewReader(servertest.Foreign("old", 1, 1, "RunStarted", "")))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Authorization": {"Bearer " + root}, "Content-Type": {"application/x-ndjson"}}
		resp, err := n.HTTPClient().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
			t.Fatalf("%s", body)
		}
		_ = resp.Body.Close()
		want("import", "ALLOWED map[] map[]", "DONE map[events:1 runId:old tenantId:t] map[]")

		_, err = n.Access().RevokeToken(ctx, &runlogv1.RevokeTokenRequest{TokenId: id})
		if err != nil {
			t.Fatal(err)
		}
		auditor = n.Token(root, "next", []string{rpc.AccessTenant}, runlogv1.Role_READER)
		want("RevokeToken", "ALLOWED map[tokenId:"+id+"] map[]")
	})
}

// backUp reads a backup to its end, and returns its announcement as the access log has it.
func backUp(ctx context.Context, t testing.TB, n *servertest.Node, destination string) string {
	t.Helper()
	stream, err := n.Clusters().Backup(ctx, &runlogv1.BackupRequest{Destination: destination})
	var begin *runlogv1.BackupBegin
	for err == nil {
		var part *runlogv1.BackupResponse
		if part, err = stream.Recv(); part.GetBegin() != nil {
			begin = part.GetBegin()
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"origin":%q,"files":"%d","bytes":"%d","clusterId":%q}`, begin.Origin, begin.Files, begin.Bytes, begin.ClusterId)
}
