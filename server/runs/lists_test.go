package runs_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// Pages continue where the last one ended, after a restart and after a rebuild of the projection. A
// token with another filter or of another cluster is refused with a remedy.
func TestPageTokensOutliveTheProjectionPRJ13(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, servertest.OnDisk(t))
		var want []string
		appendRun := func(id string) string {
			return n.Append(id, servertest.NewEvent("RunStarted"), servertest.NewEvent("StepStarted", servertest.Step("a"))).Position
		}
		for i := range 12 {
			id := fmt.Sprint("run-", i)
			appendRun(id)
			want = append(want, id)
		}
		slices.Reverse(want)
		ask := func(n *servertest.Node, req *runlogv1.ListRunsRequest) (*runlogv1.ListRunsResponse, error) {
			return n.Runs.ListRuns(n.Context(), req)
		}
		request := func(token string) *runlogv1.ListRunsRequest {
			return &runlogv1.ListRunsRequest{TenantId: "tenant", Status: []runlogv1.RunStatus_Value{runlogv1.RunStatus_RUNNING}, PageSize: 2, PageToken: token}
		}
		first := request("")
		first.MinPosition = n.Append("run-8", servertest.NewEvent("StepCompleted", servertest.Step("a"))).Position
		var got []string
		page, err := ask(n, first)
		for i, between := range []func(){
			func() {},
			func() { n.Restart() },
			func() {
				n.Restart(func() {
					if err := os.RemoveAll(filepath.Join(n.Opts.DataDir, "projection")); err != nil {
						t.Fatal(err)
					}
				})
			},
			func() { appendRun("newer") },
		} {
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range page.Runs {
				got = append(got, r.RunId)
			}
			between()
			req := request(page.NextPageToken)
			req.PageSize += uint32(i % 2) // may change
			page, err = ask(n, req)
		}
		if err != nil || page.NextPageToken != "" {
			t.Fatalf("last page: %v, %v", page, err)
		}
		for _, r := range page.Runs {
			got = append(got, r.RunId)
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages %v, want %v", got, want)
		}

		first.MinPosition = ""
		if page, err = ask(n, first); err != nil {
			t.Fatal(err)
		}
		token := page.NextPageToken
		other := servertest.Start(t, servertest.OnDisk(t))
		other.Append("run", servertest.NewEvent("RunStarted"))
		_, err = ask(other, request(token))
		servertest.Refused(t, err, contract.ReasonResumeTokenInvalid) // READ-7
		for what, c := range map[string]struct {
			on   *servertest.Node
			req  *runlogv1.ListRunsRequest
			says string
		}{
			"another tenant": {n, &runlogv1.ListRunsRequest{TenantId: "other", Status: []runlogv1.RunStatus_Value{runlogv1.RunStatus_RUNNING}, PageToken: token}, "another filter"},
			"another status": {n, &runlogv1.ListRunsRequest{TenantId: "tenant", Status: []runlogv1.RunStatus_Value{runlogv1.RunStatus_FAILED}, PageToken: token}, "another filter"},
			"no filter":      {n, &runlogv1.ListRunsRequest{PageToken: token}, "another filter"},
			"another window": {n, &runlogv1.ListRunsRequest{TenantId: "tenant", Status: []runlogv1.RunStatus_Value{runlogv1.RunStatus_RUNNING}, CreatedAfter: timestamppb.Now(), PageToken: token}, "another filter"},
			"cut off":        {n, request(token[:len(token)-4]), "was changed"},
			"of a watch":     {n, request(n.WatchToken("run", 3)), "not a token of a list"},
			"garbage":        {n, request(n.Incarnation().String() + "-" + base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat("\x03", 60)))), "was changed"},
		} {
			_, err := ask(c.on, c.req)
			r := servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
			if text := r.Fields["pageToken"]; !strings.Contains(text, c.says) || !strings.Contains(text, "omit pageToken") {
				t.Errorf("%s: %q", what, r.Fields)
			}
		}
	})
}

// Runs are listed in the order of their creation and filtered by that time, whatever their
// producers' clocks are: there is no order by emittedAt (READ-5).
func TestListsGoByCreationREAD5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, servertest.OnDisk(t))
		var want []string
		var last *runlogv1.AppendEventsResponse
		for i := range 4 {
			id := fmt.Sprint("run-", i)
			last = n.Append(id, servertest.NewEvent("RunStarted", func(e *runlogv1.EventWrite) {
				e.EmittedAt = &timestamppb.Timestamp{Seconds: e.EmittedAt.Seconds - int64(i)*3600}
			}))
			want = append([]string{id}, want...)
		}
		list := func(req *runlogv1.ListRunsRequest) (ids []string) {
			t.Helper()
			req.MinPosition = last.Position
			resp, err := n.Runs.ListRuns(n.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range resp.Runs {
				ids = append(ids, r.RunId)
			}
			return ids
		}
		servertest.WantEqual(t, "newest first", fmt.Sprint(list(&runlogv1.ListRunsRequest{})), fmt.Sprint(want))
		servertest.WantEqual(t, "before the last one was made",
			fmt.Sprint(list(&runlogv1.ListRunsRequest{CreatedBefore: last.Results[0].PersistedAt})), fmt.Sprint(want[1:]))
		_, err := n.Runs.ListRuns(n.Context(), &runlogv1.ListRunsRequest{OrderBy: "emittedAt"})
		if r := servertest.Refused(t, err, contract.ReasonInvalidArgumentField); r.Fields["orderBy"] == "" {
			t.Errorf("violations %v", r.Fields)
		}
	})
}
