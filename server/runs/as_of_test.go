package runs_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
	"runlog/server/servertest"
	"runlog/storage"
	"runlog/testbed/bubble"
	"runlog/testbed/bubble/property"
)

// wholeList reads all pages of a list, and the position of the first one.
func wholeList(n *servertest.Node, req *runlogv1.ListRunsRequest) (rows []*runlogv1.Run, position string) {
	n.T.Helper()
	req = proto.CloneOf(req)
	for {
		page, err := n.Runs.ListRuns(n.Context(), req)
		if err != nil {
			n.T.Fatalf("%v: %v", req, err)
		}
		if position == "" {
			position = page.Applied.Position
		} else if req.AsOfPosition != "" || req.AsOfTime != nil {
			servertest.WantEqual(n.T, "position of a page", page.Applied.Position, position)
		}
		rows = append(rows, page.Runs...)
		if req.PageToken = page.NextPageToken; req.PageToken == "" {
			return rows, position
		}
	}
}

// TestListAsOfTR7: the list as of a position is the list that a node answered when it stood there:
// by any filter, in both orders, in pages of any size, and again after further events. So is the
// list as of the time of that position.
func TestListAsOfTR7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n, worlds := servertest.Start(t), 0
		property.Check(t, func(t *rapid.T) {
			worlds++
			tenant := fmt.Sprint("tenant-", worlds)
			someFilter := rapid.Custom(func(t *rapid.T) *runlogv1.ListRunsRequest {
				req := &runlogv1.ListRunsRequest{TenantId: tenant, OrderBy: rapid.SampledFrom([]string{"newest", "oldest"}).Draw(t, "order")}
				for status := range runlogv1.RunStatus_Value_name {
					if status > 0 && rapid.IntRange(0, 3).Draw(t, "status") == 0 {
						req.Status = append(req.Status, runlogv1.RunStatus_Value(status))
					}
				}
				if rapid.IntRange(0, 2).Draw(t, "started") == 0 {
					req.StartedAfter = timestamppb.New(time.Date(2026, 2, 11, 10, 29, 0, 0, time.UTC))
				}
				if rapid.IntRange(0, 2).Draw(t, "prefix") == 0 {
					req.RunIdPrefix = fmt.Sprint(tenant, "-1")
				}
				return req
			})
			type stood struct {
				req      *runlogv1.ListRunsRequest
				rows     []*runlogv1.Run
				position string
				at       *timestamppb.Timestamp
			}
			var before []stood
			check := func() {
				for _, b := range before {
					b.req.PageSize = rapid.Uint32Range(1, 4).Draw(t, "page size")
					for _, moment := range []func(*runlogv1.ListRunsRequest){
						func(r *runlogv1.ListRunsRequest) { r.AsOfPosition = b.position },
						func(r *runlogv1.ListRunsRequest) { r.AsOfTime = b.at },
					} {
						req := proto.CloneOf(b.req)
						moment(req)
						rows, _ := wholeList(n, req)
						if got, want := (&runlogv1.ListRunsResponse{Runs: rows}), (&runlogv1.ListRunsResponse{Runs: b.rows}); !proto.Equal(got, want) {
							t.Fatalf("%v\ngot  %v\nwant %v", req, got, want)
						}
					}
				}
			}
			types := []string{"RunStarted", "RunStarted", "RunPaused", "RunResumed", "RunCompleted", "RunFailed", "StepStarted", "StepFailed", "StepCompleted"}
			for i := range rapid.IntRange(1, 25).Draw(t, "appends") {
				runID := fmt.Sprint(tenant, "-", rapid.IntRange(1, 12).Draw(t, "run"))
				e := servertest.NewEvent(rapid.SampledFrom(types).Draw(t, "type"), servertest.Attempt(rapid.Uint32Range(1, 3).Draw(t, "attempt")))
				if e.TenantId = tenant; strings.HasPrefix(e.EventType, "Step") {
					e.StepId = "a"
				}
				if i == 0 {
					if _, err := n.Runs.CreateRun(n.Context(), &runlogv1.CreateRunRequest{Run: servertest.NewRun(tenant+"-1", func(r *runlogv1.Run) { r.TenantId = tenant })}); err != nil {
						t.Fatal(err)
					}
				} else {
					n.Append(runID, e)
				}
				if rapid.IntRange(0, 3).Draw(t, "look") == 0 {
					b := stood{req: someFilter.Draw(t, "filter")}
					b.rows, b.position = wholeList(n, b.req)
					b.at = timestamppb.New(time.Unix(0, n.Server.Internals().Replica.Store().Applied().PersistedAt))
					before = append(before, b)
				}
			}
			check()
		})
	})
}

// TestListAsOfPagesTR7: a page folds a bounded number of events, also of runs that no filter asks
// for, and ends then, without a run or with few. All pages are of the moment of the first one, also
// while runs are created and changed. Every node answers the same.
func TestListAsOfPagesTR7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		nodes := servertest.StartNodes(t, 3)
		for i := range 4 {
			id := fmt.Sprint("run-", i)
			nodes[0].Append(id, servertest.NewEvent("RunStarted"))
			for from := 0; from < 7000; from += 1000 {
				nodes[0].Append(id, servertest.Steps(fmt.Sprint("s", from, "-"), 1000)...)
			}
		}
		_, position := wholeList(nodes[0], &runlogv1.ListRunsRequest{})
		for i := range 4 {
			nodes[0].Append(fmt.Sprint("run-", i), servertest.NewEvent("RunCompleted"))
		}
		for i, n := range nodes {
			req := &runlogv1.ListRunsRequest{AsOfPosition: position}
			var ids []string
			for pages := 1; ; pages++ {
				page, err := n.Runs.ListRuns(n.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range page.Runs {
					ids = append(ids, fmt.Sprint(r.RunId, " ", r.Status, " ", r.LastSeq))
				}
				if n := len(page.Runs); n > 3 {
					t.Errorf("a page folded %d runs of 7,001 events", n)
				}
				n.Append(fmt.Sprint("new-", i, "-", pages), servertest.NewEvent("RunStarted"))
				if req.PageToken = page.NextPageToken; req.PageToken == "" {
					break
				}
			}
			servertest.WantEqual(t, fmt.Sprint("the list of node ", i), strings.Join(ids, ", "),
				"run-3 RUNNING 7001, run-2 RUNNING 7001, run-1 RUNNING 7001, run-0 RUNNING 7001")
			servertest.WantEqual(t, "completed", len(allPages(n, &runlogv1.ListRunsRequest{AsOfPosition: position, Status: []runlogv1.RunStatus_Value{runlogv1.RunStatus_COMPLETED}})), 0)
		}
	})
}

func allPages(n *servertest.Node, req *runlogv1.ListRunsRequest) []*runlogv1.Run {
	rows, _ := wholeList(n, req)
	return rows
}

// TestListAsOfMetadataTR7: labels, and the filter by them, are those of now.
func TestListAsOfMetadataTR7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		if _, err := n.Runs.CreateRun(n.Context(), &runlogv1.CreateRunRequest{Run: servertest.NewRun("run", func(r *runlogv1.Run) { r.Labels = map[string]string{"a": "1"} })}); err != nil {
			t.Fatal(err)
		}
		_, position := wholeList(n, &runlogv1.ListRunsRequest{})
		if _, err := n.Runs.UpdateRun(n.Context(), &runlogv1.UpdateRunRequest{RunId: "run", Labels: map[string]string{"b": "1"}}); err != nil {
			t.Fatal(err)
		}
		servertest.WantEqual(t, "by the label of then", listed(n, &runlogv1.ListRunsRequest{AsOfPosition: position, Labels: []string{"a=1"}}), "")
		servertest.WantEqual(t, "by the label of now", listed(n, &runlogv1.ListRunsRequest{AsOfPosition: position, Labels: []string{"b=1"}}), "run")
	})
}

// TestListAsOfRefusedTR7: a moment that is ahead, or of another incarnation, or a second one, is
// refused and named. So are a count, and a token of another moment. Before the first run the list
// is empty.
func TestListAsOfRefusedTR7(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		early := timestamppb.Now()
		time.Sleep(time.Second)
		n.Append("a", servertest.NewEvent("RunStarted"))
		n.Append("b", servertest.NewEvent("RunStarted"))
		applied := n.Server.Internals().Replica.Store().Applied()
		at := rpc.FormatPosition(applied.Incarnation, applied.Position())
		page, err := n.Runs.ListRuns(n.Context(), &runlogv1.ListRunsRequest{AsOfPosition: at, PageSize: 1})
		if err != nil || len(page.Runs) != 1 || page.NextPageToken == "" {
			t.Fatalf("%v, %v", page, err)
		}
		for _, c := range []struct {
			req         *runlogv1.ListRunsRequest
			field, says string
		}{
			{&runlogv1.ListRunsRequest{AsOfTime: timestamppb.New(time.Now().Add(time.Hour))}, "asOfTime", "is in the future"},
			{&runlogv1.ListRunsRequest{AsOfTime: &timestamppb.Timestamp{Seconds: -1}}, "asOfTime", "is not a time"},
			{&runlogv1.ListRunsRequest{AsOfPosition: rpc.FormatPosition(applied.Incarnation, applied.Position()+1000)}, "asOfPosition", "is ahead of the log"},
			{&runlogv1.ListRunsRequest{AsOfPosition: "x"}, "asOfPosition", "is not a position"},
			{&runlogv1.ListRunsRequest{AsOfPosition: at, AsOfTime: early}, "asOfPosition", "set one of them"},
			{&runlogv1.ListRunsRequest{AsOfPosition: at, Count: true}, "count", "leave it out"},
			{&runlogv1.ListRunsRequest{AsOfTime: early, PageToken: page.NextPageToken}, "pageToken", "another filter or moment"},
			{&runlogv1.ListRunsRequest{PageToken: page.NextPageToken}, "pageToken", "another filter or moment"},
		} {
			_, err := n.Runs.ListRuns(n.Context(), c.req)
			if e := servertest.Refused(t, err, contract.ReasonInvalidArgumentField); !strings.Contains(e.Fields[c.field], c.says) {
				t.Errorf("%v: %v, want %s: %s", c.req, e.Fields, c.field, c.says)
			}
		}
		_, err = n.Runs.ListRuns(n.Context(), &runlogv1.ListRunsRequest{AsOfPosition: rpc.FormatPosition(storage.Incarnation{9}, 1)})
		servertest.Refused(t, err, contract.ReasonResumeTokenInvalid)
		servertest.WantEqual(t, "before the first run", listed(n, &runlogv1.ListRunsRequest{AsOfTime: early}), "")
		servertest.WantEqual(t, "before the first position", listed(n, &runlogv1.ListRunsRequest{AsOfPosition: rpc.FormatPosition(applied.Incarnation, 0)}), "")
		over := n.Get("/v1/runs?asOfPosition=" + at)
		if len(over["runs"].([]any)) != 2 {
			t.Errorf("over HTTP: %v", over)
		}
		// A runSeq is a moment of one run. If it were ignored, the list would be that of now.
		n.HTTP(http.MethodGet, "/v1/runs?asOfSeq=1", "").Refused(t, contract.ReasonInvalidArgumentField)
	})
}
