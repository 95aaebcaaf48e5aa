package audit_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

// unseenOf returns what an answer says of the values of its filter.
func unseenOf(resp *runlogv1.QueryEventsResponse) (list []string) {
	for _, v := range resp.GetUnseen() {
		text := v.Field + " " + v.Value
		if v.DidYouMean != "" {
			text += ", rather " + v.DidYouMean
		}
		if v.Uncertain {
			text += ", perhaps"
		}
		list = append(list, text)
	}
	return list
}

// TestUnseenREAD3: an answer says which types, runs and tenants of its filter the cluster has never
// had, of any node, in any window. It never says that of a value whose first event was acknowledged
// before the call.
func TestUnseenREAD3(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := servertest.StartNodes(t, 3, servertest.EachOnDisk(t))
		auditLoad(all[0], 0)
		last := func() *timestamppb.Timestamp {
			_, last := query(all, &runlogv1.QueryEventsRequest{})
			return last.To
		}
		early := last()
		all[0].MustAppend("run-1", servertest.NewEvent("Late,1", func(e *runlogv1.EventWrite) { e.TenantId = "other" }))
		for i, c := range []struct {
			req  *runlogv1.QueryEventsRequest
			want []string
		}{
			{&runlogv1.QueryEventsRequest{}, nil},
			{&runlogv1.QueryEventsRequest{Types: []string{"StepStarted", "StepCompleted"}}, nil},
			{&runlogv1.QueryEventsRequest{Types: []string{"Late,1"}}, nil},
			{&runlogv1.QueryEventsRequest{Types: []string{"Late,1"}, To: early}, nil}, // behind it
			{&runlogv1.QueryEventsRequest{Types: []string{"StepStarted"}, TenantId: "nobody"}, []string{"tenantId nobody"}},
			{&runlogv1.QueryEventsRequest{TenantId: "other", RunId: "run-2"}, nil}, // each is there
			{&runlogv1.QueryEventsRequest{TenantId: "tenant", To: timestamppb.New(early.AsTime().AddDate(-1, 0, 0))}, nil},
			{&runlogv1.QueryEventsRequest{Types: []string{"RunFailed"}}, []string{"types RunFailed"}},
			{&runlogv1.QueryEventsRequest{Types: []string{"StepStarted", "stepstarted", "Late"}},
				[]string{"types Late", "types stepstarted, rather StepStarted"}},
			{&runlogv1.QueryEventsRequest{RunId: "run-1"}, nil},
			{&runlogv1.QueryEventsRequest{RunId: "run-1", To: timestamppb.New(early.AsTime().AddDate(-1, 0, 0))}, nil},
			{&runlogv1.QueryEventsRequest{RunId: "run-9"}, []string{"runId run-9"}},
			{&runlogv1.QueryEventsRequest{RunId: "run-9", Types: []string{"StepStarted", "StepFialed"}},
				[]string{"runId run-9", "types StepFialed, rather StepFailed"}},
		} {
			for _, n := range all {
				resp, err := n.Audit.QueryEvents(n.Context(), c.req)
				if err != nil || !slices.Equal(unseenOf(resp), c.want) {
					t.Errorf("%d: node %s: %q, %v; want %q", i, n.Opts.NodeID, unseenOf(resp), err, c.want)
				}
			}
		}
		// The first event of a type is known at every node when its append is answered.
		for i := range 20 {
			name, run := fmt.Sprint("Type", i), fmt.Sprint("new-", i)
			all[i%3].MustAppend(run, servertest.NewEvent(name))
			n := all[(i+1)%3]
			resp, err := n.Audit.QueryEvents(n.Context(), &runlogv1.QueryEventsRequest{Types: []string{name}, RunId: run, To: early})
			if err != nil || len(resp.Unseen) > 0 {
				t.Fatalf("%s: %q, %v", name, unseenOf(resp), err)
			}
		}
		a := all[1].HTTP(http.MethodGet, "/v1/audit/events?types=RunFialed&types=StepStarted&pageSize=1", "")
		if a.Code != http.StatusOK || !strings.Contains(string(a.Body), `"unseen":[{"field":"types","value":"RunFialed","didYouMean":"RunFailed"`) {
			t.Errorf("%d %s", a.Code, a.Body)
		}
		next, _ := servertest.ParseObject(t, a.Body)["nextPageToken"].(string)
		a = all[1].HTTP(http.MethodGet, "/v1/audit/events?types=RunFialed&types=StepStarted&pageSize=1&pageToken="+next, "")
		if a.Code != http.StatusOK || strings.Contains(string(a.Body), "RunFialed") {
			t.Errorf("the second page says it again: %d %s", a.Code, a.Body)
		}
	})
}

// TestUnseenIsNotGuessed: a node that is cut off from the leader answers a closed window, and does
// not say that the cluster lacks what only this node lacks. A node whose projections were deleted
// finds the types in the log.
func TestUnseenIsNotGuessed(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := servertest.StartNodes(t, 3, servertest.EachOnDisk(t))
		auditLoad(all[0], 0)
		_, last := query(all, &runlogv1.QueryEventsRequest{})
		auditLoad(all[0], 1)
		alone := all[2]
		alone.MustAppend("run-2", servertest.NewEvent("Mark"))
		alone.List("run-1") // has everything
		req := &runlogv1.QueryEventsRequest{RunId: "run-9", Types: []string{"RunFailed", "StepStarted"}, To: last.To}
		// While there is a leader, the answer waits for the projection, which may be behind.
		if resp, err := alone.Audit.QueryEvents(alone.Context(), req); err != nil || len(resp.Unseen) != 2 {
			t.Fatalf("with a leader: %q, %v", unseenOf(resp), err)
		}
		all[0].Close()
		all[1].Close()
		resp, err := alone.Audit.QueryEvents(alone.Context(), req)
		if want := []string{"runId run-9, perhaps", "types RunFailed, perhaps"}; err != nil || !slices.Equal(unseenOf(resp), want) {
			t.Errorf("cut off: %q, %v; want %q", unseenOf(resp), err, want)
		}
		all[0].Start()
		all[1].Start()
		alone.Restart(func() {
			if err := os.RemoveAll(filepath.Join(alone.Opts.DataDir, "projection")); err != nil {
				t.Fatal(err)
			}
		})
		alone.List("run-1") // the cluster leads again
		resp, err = alone.Audit.QueryEvents(alone.Context(), req)
		if want := []string{"runId run-9", "types RunFailed"}; err != nil || !slices.Equal(unseenOf(resp), want) {
			t.Errorf("with a new projection: %q, %v; want %q", unseenOf(resp), err, want)
		}
	})
}
