package runs_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

func TestCreateRunAPP12(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		create := func(r *runlogv1.Run, events ...*runlogv1.EventWrite) (*runlogv1.CreateRunResponse, error) {
			return n.Runs.CreateRun(n.Context(), &runlogv1.CreateRunRequest{Run: r, Events: events})
		}
		mustCreate := func(r *runlogv1.Run, events ...*runlogv1.EventWrite) *runlogv1.CreateRunResponse {
			t.Helper()
			resp, err := create(r, events...)
			if err != nil {
				t.Fatal(err)
			}
			return resp
		}
		getRun := func(id string) *runlogv1.Run {
			t.Helper()
			resp, err := n.Runs.GetRun(n.Context(), &runlogv1.GetRunRequest{RunId: id})
			if err != nil {
				t.Fatal(err)
			}
			return resp.Run
		}

		first := mustCreate(servertest.NewRun("run"), servertest.NewEvent("RunQueued"), servertest.NewEvent("RunStarted"))
		servertest.WantResults(t, "first events", first.Results, "nn")
		want := servertest.NewRun("run")
		want.LastSeq, want.Status, want.CreatedAt = 2, runlogv1.RunStatus_RUNNING, first.Results[0].PersistedAt
		want.StartedAt, want.LastEventAt = servertest.NewEvent("RunStarted").EmittedAt, want.CreatedAt
		servertest.WantProto(t, "created", first.Run, want)
		servertest.WantProto(t, "GetRun", getRun("run"), want)

		again := mustCreate(servertest.NewRun("run"), servertest.NewEvent("RunQueued"), servertest.NewEvent("RunStarted"))
		servertest.WantResults(t, "the same call again", again.Results, "dd")
		servertest.WantProto(t, "the same run again", again.Run, want)
		servertest.WantResults(t, "the same run without events", mustCreate(servertest.NewRun("run")).Results, "")

		servertest.WantEqual(t, "created", fmt.Sprint(first.Created, again.Created, first.Position != "", again.Position > first.Position), "true false true true")

		for fields, change := range map[string]func(*runlogv1.Run){
			"labels":              func(r *runlogv1.Run) { r.Labels["team"] = "other" },
			"engineType,labels":   func(r *runlogv1.Run) { r.Labels, r.EngineType = nil, nil },
			"planRef.sha256":      func(r *runlogv1.Run) { r.PlanRef.Sha256 = strings.Repeat("00", 32) },
			"planRef.compression": func(r *runlogv1.Run) { r.PlanRef.Compression = nil },
			"triggeredBy":         func(r *runlogv1.Run) { r.TriggeredBy = proto.String("other") },
		} {
			_, err := create(servertest.NewRun("run", change), servertest.NewEvent("RunQueued"))
			r := servertest.Refused(t, err, contract.ReasonRunAlreadyExists)
			if r.Metadata["run_id"] != "run" || r.Metadata["fields"] != fields || !strings.Contains(r.Message, strings.ReplaceAll(fields, ",", ", ")) {
				t.Errorf("%s: metadata %v, %s", fields, r.Metadata, r.Message)
			}
		}
		_, err := create(servertest.NewRun("run", func(r *runlogv1.Run) { r.TenantId = "other" }))
		servertest.Refused(t, err, contract.ReasonRunScopeMismatch)
		_, err = create(servertest.NewRun("run"), servertest.NewEvent("RunQueued"), servertest.NewEvent("RunCompleted"))
		if r := servertest.Refused(t, err, contract.ReasonRunAlreadyExists); r.Metadata["index"] != "1" {
			t.Errorf("a new event of a run that exists: %v, %s", r.Metadata, r.Message)
		}
		_, err = n.Runs.CreateRun(n.Context(), &runlogv1.CreateRunRequest{Run: servertest.NewRun("run"), Mode: runlogv1.CreateMode_EXCLUSIVE})
		servertest.Refused(t, err, contract.ReasonRunAlreadyExists)
		servertest.WantEqual(t, "lastSeq after refusals", getRun("run").LastSeq, 2)
		exclusive, err := n.Runs.CreateRun(n.Context(), &runlogv1.CreateRunRequest{Run: servertest.NewRun("exclusive"), Mode: runlogv1.CreateMode_EXCLUSIVE})
		if err != nil || !exclusive.Created {
			t.Errorf("the first exclusive call: %v, %v", exclusive, err)
		}

		// A run that came to be by appends takes the metadata of the first call.
		n.Append("by-events", servertest.NewEvent("RunStarted"))
		adopted := mustCreate(servertest.NewRun("by-events"), servertest.NewEvent("RunStarted"))
		servertest.WantResults(t, "events that are stored", adopted.Results, "d")
		servertest.WantEqual(t, "adopted", fmt.Sprint(adopted.Created, adopted.Run.GetEngineType(), getRun("by-events").Labels["team"]), "falsetemporaldata")
		_, err = create(servertest.NewRun("by-events", func(r *runlogv1.Run) { r.TriggerSource = nil }))
		servertest.Refused(t, err, contract.ReasonRunAlreadyExists)

		// Atomic: an invalid event or another scope makes no run.
		_, err = create(servertest.NewRun("bad"), servertest.NewEvent("RunStarted"), servertest.NewEvent("StepStarted"))
		servertest.WantEqual(t, "index", servertest.Refused(t, err, contract.ReasonInvalidArgumentField).Metadata["index"], "1")
		_, err = create(servertest.NewRun("bad"), servertest.NewEvent("RunStarted", func(e *runlogv1.EventWrite) { e.TenantId = "other" }))
		servertest.Refused(t, err, contract.ReasonRunScopeMismatch)
		_, err = n.Runs.GetRun(n.Context(), &runlogv1.GetRunRequest{RunId: "bad"})
		servertest.Refused(t, err, contract.ReasonRunNotFound)

		// Without events; sparse first events take the scope from the call.
		servertest.WantEqual(t, "status of an empty run", mustCreate(servertest.NewRun("empty")).Run.Status, runlogv1.RunStatus_PENDING)
		servertest.WantEqual(t, "snapshot of an empty run", n.Snapshot("empty").TenantId+n.Snapshot("empty").PlanId, "tenantplan")
		servertest.WantEqual(t, "events of an empty run", len(n.List("empty")), 0)
		servertest.WantResults(t, "sparse", mustCreate(servertest.NewRun("sparse"), servertest.NewEvent("RunPaused", servertest.Sparse, servertest.Key("k"))).Results, "n")
		servertest.WantEqual(t, "inherited plan", n.List("sparse")[0].PlanId, "plan")

		_, err = create(&runlogv1.Run{})
		r := servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
		for _, field := range []string{"runId", "tenantId", "projectId", "environmentId", "planRef.planId", "planRef.planVersion"} {
			if r.Fields["run."+field] == "" {
				t.Errorf("no violation of run.%s: %v", field, r.Fields)
			}
		}
		_, err = create(nil)
		servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
		_, err = create(servertest.NewRun("digest", func(r *runlogv1.Run) { r.PlanRef.Sha256 = "ab" }))
		if r := servertest.Refused(t, err, contract.ReasonInvalidArgumentField); r.Fields["run.planRef.sha256"] == "" {
			t.Errorf("a digest of two digits: %v", r.Fields)
		}
		plain := mustCreate(servertest.NewRun("plain", func(r *runlogv1.Run) { r.PlanRef = &runlogv1.PlanRef{PlanId: "p", PlanVersion: "1"} }))
		servertest.WantEqual(t, "a plan without more", plain.Created, true)
		_, err = create(servertest.NewRun("a|b", func(r *runlogv1.Run) { r.Labels["\x00"] = "x" }))
		servertest.WantEqual(t, "violations", len(servertest.Refused(t, err, contract.ReasonInvalidArgumentField).Fields), 2)

		over := n.Post("/v1/runs", `{"run":{"run_id":"http","tenantId":"tenant","projectId":"project","environmentId":"prod","engineRunRef":"ref",
		"planRef":{"uri":"u","sha256":"`+strings.Repeat("ab", 32)+`","schemaVersion":"v","planId":"plan","planVersion":"1","sizeBytes":"12"},"labels":{"a":"b"}},
		"events":[`+servertest.HTTPEvent("x")+`,{"contractVersion":"1.1","eventType":"StepStarted","stepId":"flat","planVersion":"1","emittedAt":"2026-02-11T10:00:00Z","startedAt":"2026-02-11T09:00:00Z"}]}`)
		servertest.WantEqual(t, "over HTTP", fmt.Sprint(len(over["results"].([]any)), " ", over["run"].(map[string]any)["status"], " ", over["run"].(map[string]any)["lastSeq"]), "2 PENDING 2")
		servertest.WantEqual(t, "flat member moved into payload", servertest.Clock(servertest.StepOf(n.Snapshot("http"), "flat").StartedAt.AsTime()), "09:00:00.000Z")
		n.Restart()
		servertest.WantProto(t, "after a restart", getRun("run"), want)
		servertest.WantResults(t, "again after a restart (IDM-6)", mustCreate(servertest.NewRun("run"), servertest.NewEvent("RunQueued")).Results, "d")
	})
}

func TestSetEngineRunRefAPP12(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		set := func(id, ref string) (*runlogv1.Run, error) {
			resp, err := n.Runs.SetEngineRunRef(n.Context(), &runlogv1.SetEngineRunRefRequest{RunId: id, EngineRunRef: ref})
			return resp.GetRun(), err
		}
		n.Append("plain", servertest.NewEvent("RunStarted"))
		if _, err := n.Runs.CreateRun(n.Context(), &runlogv1.CreateRunRequest{Run: servertest.NewRun("made")}); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"plain", "made"} {
			for range 2 {
				r, err := set(id, "temporal://x")
				if err != nil {
					t.Fatal(err)
				}
				servertest.WantEqual(t, "engineRunRef", r.GetEngineRunRef(), "temporal://x")
			}
			_, err := set(id, "temporal://y")
			servertest.Refused(t, err, contract.ReasonRunAlreadyExists)
		}
		// CreateRun stays idempotent after it.
		resp, err := n.Runs.CreateRun(n.Context(), &runlogv1.CreateRunRequest{Run: servertest.NewRun("made")})
		if err != nil || resp.Run.GetEngineRunRef() != "temporal://x" {
			t.Errorf("CreateRun again: %v, %v", resp, err)
		}
		_, err = set("nobody", "r")
		servertest.Refused(t, err, contract.ReasonRunNotFound)
		for _, bad := range []string{"", "a\x00b", strings.Repeat("x", 3000)} {
			_, err = set("plain", bad)
			servertest.Refused(t, err, contract.ReasonInvalidArgumentField)
		}
		n.Append("over", servertest.NewEvent("RunStarted"))
		servertest.WantEqual(t, "over HTTP", n.Post("/v1/runs/over:setEngineRunRef", `{"engineRunRef":"r"}`)["run"].(map[string]any)["engineRunRef"], any("r"))
		n.HTTP("POST", "/v1/runs/over:setEngineRunRef", `{"engineRunRef":"s"}`).Refused(t, contract.ReasonRunAlreadyExists)
	})
}

// TestUpdateRunAPP12: labels and the engine's reference change, each change is kept, and what
// CreateRun said remains the measure of its repetitions.
func TestUpdateRunAPP12(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		created, err := n.Runs.CreateRun(n.Context(), &runlogv1.CreateRunRequest{Run: servertest.NewRun("run")})
		if err != nil {
			t.Fatal(err)
		}
		update := func(req *runlogv1.UpdateRunRequest) *runlogv1.Run {
			t.Helper()
			resp, err := n.Runs.UpdateRun(n.Context(), req)
			if err != nil || resp.Position <= created.Position {
				t.Fatalf("%v, %v", resp, err)
			}
			return resp.Run
		}
		mask := func(paths ...string) *fieldmaskpb.FieldMask { return &fieldmaskpb.FieldMask{Paths: paths} }
		ref := func(s string) *string { return &s }
		r := update(&runlogv1.UpdateRunRequest{RunId: "run", EngineRunRef: ref("one")})
		servertest.WantEqual(t, "first reference, labels", r.GetEngineRunRef()+r.Labels["team"], "onedata")
		_, err = n.Runs.UpdateRun(n.Context(), &runlogv1.UpdateRunRequest{RunId: "run", EngineRunRef: ref("two"), PreviousEngineRunRef: "none"})
		servertest.WantEqual(t, "another previous reference", servertest.Refused(t, err, contract.ReasonRunAlreadyExists).Metadata["engine_run_ref"], "one")
		update(&runlogv1.UpdateRunRequest{RunId: "run", EngineRunRef: ref("two"), PreviousEngineRunRef: "one", Labels: map[string]string{"a": "b"}})
		// A retry changes nothing.
		update(&runlogv1.UpdateRunRequest{RunId: "run", EngineRunRef: ref("two"), PreviousEngineRunRef: "one"})
		r = update(&runlogv1.UpdateRunRequest{RunId: "run", UpdateMask: mask("labels")})
		servertest.WantEqual(t, "labels taken away", fmt.Sprint(r.GetEngineRunRef(), len(r.Labels)), "two0")
		over := n.HTTP("PATCH", "/v1/runs/run", `{"labels":{"over":"http"},"updateMask":"labels"}`).OK(t)
		servertest.WantEqual(t, "over HTTP", over["run"].(map[string]any)["labels"].(map[string]any)["over"], any("http"))

		n.Restart()
		got, err := n.Runs.GetRun(n.Context(), &runlogv1.GetRunRequest{RunId: "run"})
		if err != nil || len(got.Changes) != 4 {
			t.Fatalf("changes %v, %v", got, err)
		}
		newest, first := got.Changes[0], got.Changes[3]
		servertest.WantEqual(t, "newest change", fmt.Sprint(newest.LabelsChanged, newest.Labels["over"], len(newest.PreviousLabels), newest.EngineRunRef == nil), "truehttp0 true")
		servertest.WantEqual(t, "first change", fmt.Sprint(first.GetEngineRunRef(), first.PreviousEngineRunRef != nil, first.LabelsChanged), "onetrue false")
		again, err := n.Runs.CreateRun(n.Context(), &runlogv1.CreateRunRequest{Run: servertest.NewRun("run")})
		if err != nil || again.Created || again.Run.GetEngineRunRef() != "two" {
			t.Errorf("CreateRun again: %v, %v", again, err)
		}

		for what, req := range map[string]*runlogv1.UpdateRunRequest{
			"updateMask: nothing":  {RunId: "run"},
			"updateMask: unknown":  {RunId: "run", UpdateMask: mask("tenant_id")},
			"runId":                {RunId: "a|b", Labels: map[string]string{"a": "b"}},
			"engineRunRef":         {RunId: "run", EngineRunRef: ref("a\x00")},
			"previousEngineRunRef": {RunId: "run", EngineRunRef: ref("a"), PreviousEngineRunRef: strings.Repeat("x", 3000)},
			"labels: without name": {RunId: "run", Labels: map[string]string{"": "b"}},
		} {
			_, err := n.Runs.UpdateRun(n.Context(), req)
			if r := servertest.Refused(t, err, contract.ReasonInvalidArgumentField); r.Fields[strings.Split(what, ":")[0]] == "" {
				t.Errorf("%s: violations %v", what, r.Fields)
			}
		}
		_, err = n.Runs.UpdateRun(n.Context(), &runlogv1.UpdateRunRequest{RunId: "nobody", Labels: map[string]string{"a": "b"}})
		servertest.Refused(t, err, contract.ReasonRunNotFound)
	})
}

// TestMarksKeepTheStatus: a change of metadata right after a start, when no snapshot is in memory,
// leaves the projection as it is.
func TestMarksKeepTheStatus(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, func(o *server.Options) { o.Heartbeat = 20 * time.Millisecond })
		n.Append("run", servertest.NewEvent("RunStarted"), servertest.NewEvent("StepStarted", servertest.Step("a")))
		n.Restart()
		w := n.Watch(&runlogv1.WatchRunRequest{RunId: "run"})
		w.Until("caughtUp", func(m *runlogv1.WatchRunResponse) bool { return m.GetCaughtUp() != nil })
		resp, err := n.Runs.SetEngineRunRef(n.Context(), &runlogv1.SetEngineRunRefRequest{RunId: "run", EngineRunRef: "ref"})
		if err != nil {
			t.Fatal(err)
		}
		servertest.WantEqual(t, "status of the answer", resp.Run.Status, runlogv1.RunStatus_RUNNING)
		position := n.Append("later", servertest.NewEvent("RunStarted")).Position
		list, err := n.Runs.ListRuns(n.Context(), &runlogv1.ListRunsRequest{MinPosition: position})
		if err != nil {
			t.Fatal(err)
		}
		servertest.WantEqual(t, "listed status", list.Runs[1].Status, runlogv1.RunStatus_RUNNING)
		for range 3 {
			m := w.Until("a heartbeat", func(m *runlogv1.WatchRunResponse) bool { return m.GetHeartbeat() != nil })
			servertest.WantEqual(t, "watermark never goes back (WATCH-3)", m.GetHeartbeat().Watermark.LastEventSeq, 2)
		}
	})
}

func TestListRuns(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t)
		var created []string
		stamps := map[string]*timestamppb.Timestamp{}
		var position string
		for i := range 12 {
			id := fmt.Sprint("run-", i)
			events := []*runlogv1.EventWrite{servertest.NewEvent("RunStarted")}
			if i%3 == 1 {
				events = append(events, servertest.NewEvent("RunCompleted"))
			}
			for _, e := range events {
				e.TenantId, e.ProjectId = fmt.Sprint("t", i%2), fmt.Sprint("p", i%4)
				e.EnvironmentId, e.PlanId = fmt.Sprint("e", i%3), fmt.Sprint("plan", i%5)
			}
			resp := n.Append(id, events...)
			position, stamps[id] = resp.Position, resp.Results[0].PersistedAt
			created = append(created, id)
		}
		slices.Reverse(created)
		list := func(req *runlogv1.ListRunsRequest) (ids []string) {
			t.Helper()
			req.MinPosition = position
			for {
				resp, err := n.Runs.ListRuns(n.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range resp.Runs {
					ids = append(ids, r.RunId)
					servertest.WantProto(t, "createdAt", r.CreatedAt, stamps[r.RunId])
				}
				if req.PageToken = resp.NextPageToken; req.PageToken == "" {
					return ids
				}
			}
		}
		where := func(match func(i int) bool) (ids []string) {
			for _, id := range created {
				var i int
				fmt.Sscanf(id, "run-%d", &i)
				if match(i) {
					ids = append(ids, id)
				}
			}
			return ids
		}
		for what, c := range map[string]struct {
			req  *runlogv1.ListRunsRequest
			want []string
		}{
			"all, newest first": {&runlogv1.ListRunsRequest{}, created},
			"pages":             {&runlogv1.ListRunsRequest{PageSize: 5, OrderBy: "newest"}, created},
			"pages of one":      {&runlogv1.ListRunsRequest{PageSize: 1}, created},
			"tenant":            {&runlogv1.ListRunsRequest{TenantId: "t1", PageSize: 2}, where(func(i int) bool { return i%2 == 1 })},
			"project":           {&runlogv1.ListRunsRequest{ProjectId: "p3"}, where(func(i int) bool { return i%4 == 3 })},
			"environment":       {&runlogv1.ListRunsRequest{EnvironmentId: "e0"}, where(func(i int) bool { return i%3 == 0 })},
			"plan":              {&runlogv1.ListRunsRequest{PlanId: "plan4"}, where(func(i int) bool { return i%5 == 4 })},
			"status":            {&runlogv1.ListRunsRequest{Status: []runlogv1.RunStatus_Value{runlogv1.RunStatus_COMPLETED}, PageSize: 3}, where(func(i int) bool { return i%3 == 1 })},
			"two":               {&runlogv1.ListRunsRequest{Status: []runlogv1.RunStatus_Value{runlogv1.RunStatus_RUNNING}, TenantId: "t0"}, where(func(i int) bool { return i%3 != 1 && i%2 == 0 })},
			"nothing":           {&runlogv1.ListRunsRequest{TenantId: "none"}, nil},
			"createdAfter":      {&runlogv1.ListRunsRequest{CreatedAfter: stamps["run-6"], PageSize: 2}, where(func(i int) bool { return i > 6 })},
			"createdBefore":     {&runlogv1.ListRunsRequest{CreatedBefore: stamps["run-6"], PageSize: 2}, where(func(i int) bool { return i < 6 })},
			"between":           {&runlogv1.ListRunsRequest{CreatedAfter: stamps["run-2"], CreatedBefore: stamps["run-6"]}, where(func(i int) bool { return i > 2 && i < 6 })},
			"empty window":      {&runlogv1.ListRunsRequest{CreatedAfter: stamps["run-6"], CreatedBefore: stamps["run-2"]}, nil},
		} {
			if got := list(c.req); !slices.Equal(got, c.want) {
				t.Errorf("%s: %v, want %v", what, got, c.want)
			}
		}
		after := url.QueryEscape(stamps["run-0"].AsTime().Format(time.RFC3339Nano))
		over := n.Get("/v1/runs?status=COMPLETED&pageSize=1&tenantId=t1&createdAfter=" + after)
		servertest.WantEqual(t, "over HTTP", over["runs"].([]any)[0].(map[string]any)["runId"], any("run-7"))
		next := n.Get("/v1/runs?status=COMPLETED&page_size=1&tenant_id=t1&created_after=" + after + "&pageToken=" + over["nextPageToken"].(string))
		servertest.WantEqual(t, "next page over HTTP", next["runs"].([]any)[0].(map[string]any)["runId"], any("run-1"))

		for what, req := range map[string]*runlogv1.ListRunsRequest{
			"pageSize":            {PageSize: 1001},
			"orderBy":             {OrderBy: "emittedAt"},
			"status":              {Status: []runlogv1.RunStatus_Value{99}},
			"pageToken no base64": {PageToken: "%%%"},
			"pageToken of a kind": {PageToken: n.Position(3)},
			"minPosition":         {MinPosition: "AAAA"},
			"minPosition of kind": {MinPosition: n.WatchToken("run", 3)},
			"minPosition longer":  {MinPosition: n.Position(3) + "x"},
			"createdAfter":        {CreatedAfter: &timestamppb.Timestamp{Seconds: -5}},
			"createdBefore":       {CreatedBefore: &timestamppb.Timestamp{Nanos: -1}},
		} {
			_, err := n.Runs.ListRuns(n.Context(), req)
			if err == nil {
				t.Errorf("%s is taken", what)
				continue
			}
			if r := servertest.Refused(t, err, contract.ReasonInvalidArgumentField); r.Fields[strings.Fields(what)[0]] == "" {
				t.Errorf("%s: violations %v", what, r.Fields)
			}
		}
	})
}
