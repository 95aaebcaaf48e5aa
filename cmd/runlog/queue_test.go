package main

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// fakeQueues has one queue, and remembers what was asked.
type fakeQueues struct {
	runlogv1.UnimplementedQueueServiceServer

	asked    proto.Message // the last request
	settings runlogv1.QueueSettings
}

func (f *fakeQueues) queue(name string) *runlogv1.Queue {
	s := proto.CloneOf(&f.settings)
	if s.LeaseTtl == nil {
		s.LeaseTtl = durationpb.New(30 * time.Second)
	}
	if s.OnFull == 0 {
		s.OnFull = runlogv1.OnFull_QUEUE
	}
	s.AgingPeriod, s.MaxStartAttempts, s.DrainTimeout = durationpb.New(10*time.Minute), proto.Uint32(5), durationpb.New(time.Minute)
	if name == "" {
		name = "default"
	}
	held := ""
	if name == "held" {
		held = contract.ReasonClusterHeld.Info().Help
	}
	return &runlogv1.Queue{
		TenantId: "acme", ProjectId: "web", EnvironmentId: "prod", HeldReason: held, Queue: name, Settings: s, CreatedAt: seconds(0), Depth: 1203, Ready: 1200, Delayed: 3,
		Leased: 2, Running: 10, ReadyByPriority: []uint64{0, 0, 0, 0, 0, 1100, 0, 0, 0, 100}, OldestAt: seconds(60), RequestsTotal: 5000, StartsTotal: 3700, EndsTotal: 3690,
	}
}

func (f *fakeQueues) ListQueues(_ context.Context, req *runlogv1.ListQueuesRequest) (*runlogv1.ListQueuesResponse, error) {
	f.asked = req
	if req.GetPageToken() == "" {
		return &runlogv1.ListQueuesResponse{Queues: []*runlogv1.Queue{f.queue("")}, NextPageToken: "more"}, nil
	}
	empty := &runlogv1.Queue{TenantId: "acme", ProjectId: "web", EnvironmentId: "test", Queue: "nightly",
		Settings: &runlogv1.QueueSettings{MaxRunning: proto.Uint64(4), Paused: proto.Bool(true)}}
	return &runlogv1.ListQueuesResponse{Queues: []*runlogv1.Queue{empty}}, nil
}

func (f *fakeQueues) GetQueue(_ context.Context, req *runlogv1.GetQueueRequest) (*runlogv1.GetQueueResponse, error) {
	if f.asked = req; req.GetQueue() == "none" {
		return nil, asStatus(&contract.Error{Reason: contract.ReasonQueueNotFound, Message: "there is no queue none. " + contract.ReasonQueueNotFound.Info().Help})
	}
	return &runlogv1.GetQueueResponse{Queue: f.queue(req.GetQueue())}, nil
}

func (f *fakeQueues) PutQueue(_ context.Context, req *runlogv1.PutQueueRequest) (*runlogv1.PutQueueResponse, error) {
	f.asked = req
	proto.Merge(&f.settings, req.GetSettings())
	return &runlogv1.PutQueueResponse{Queue: f.queue(req.GetQueue())}, nil
}

func (f *fakeQueues) PauseQueue(_ context.Context, req *runlogv1.PauseQueueRequest) (*runlogv1.PauseQueueResponse, error) {
	f.asked = req
	f.settings.Paused = proto.Bool(true)
	return &runlogv1.PauseQueueResponse{Queue: f.queue(req.GetQueue())}, nil
}

func (f *fakeQueues) ResumeQueue(_ context.Context, req *runlogv1.ResumeQueueRequest) (*runlogv1.ResumeQueueResponse, error) {
	f.asked = req
	f.settings.Paused = proto.Bool(false)
	return &runlogv1.ResumeQueueResponse{Queue: f.queue(req.GetQueue())}, nil
}

func (f *fakeQueues) ListQueuedRuns(_ context.Context, req *runlogv1.ListQueuedRunsRequest) (*runlogv1.ListQueuedRunsResponse, error) {
	f.asked = req
	return &runlogv1.ListQueuedRunsResponse{Runs: []*runlogv1.QueuedRun{
		{RunId: "run-1", State: runlogv1.QueuedRunState_RUNNING, Priority: 5, EnqueuedAt: seconds(1), StartAttempts: 1, Worker: "host-1"},
		{RunId: "run-2", State: runlogv1.QueuedRunState_LEASED, Priority: 9, EnqueuedAt: seconds(2), StartAttempts: 2, Worker: "host-2", LeaseExpireTime: seconds(90)},
		{RunId: "run-3", State: runlogv1.QueuedRunState_READY, EnqueuedAt: seconds(3)},
		{RunId: "run-4", State: runlogv1.QueuedRunState_DELAYED, Priority: 5, EnqueuedAt: seconds(4), NotBefore: seconds(600)},
	}}, nil
}

func (f *fakeQueues) CancelQueued(_ context.Context, req *runlogv1.CancelQueuedRequest) (*runlogv1.CancelQueuedResponse, error) {
	if f.asked = req; req.GetRunId() == "run-1" {
		return nil, asStatus(&contract.Error{Reason: contract.ReasonRunNotQueued, Message: "run \"run-1\" is running. " + contract.ReasonRunNotQueued.Info().Help})
	}
	return &runlogv1.CancelQueuedResponse{RunSeq: 2, Position: "p"}, nil
}

func (f *fakeQueues) Reprioritize(_ context.Context, req *runlogv1.ReprioritizeRequest) (*runlogv1.ReprioritizeResponse, error) {
	f.asked = req
	return &runlogv1.ReprioritizeResponse{Run: &runlogv1.QueuedRun{RunId: req.GetRunId(), State: runlogv1.QueuedRunState_READY, Priority: req.GetPriority(), EnqueuedAt: seconds(3)}}, nil
}

func (f *fakeQueues) RequeueRun(_ context.Context, req *runlogv1.RequeueRunRequest) (*runlogv1.RequeueRunResponse, error) {
	f.asked = req
	return &runlogv1.RequeueRunResponse{Idempotent: req.GetRunId() == "run-3", Run: &runlogv1.QueuedRun{RunId: req.GetRunId(), State: runlogv1.QueuedRunState_READY, EnqueuedAt: seconds(3)}}, nil
}

func (f *fakeQueues) LeaseRuns(_ context.Context, req *runlogv1.LeaseRunsRequest) (*runlogv1.LeaseRunsResponse, error) {
	f.asked = req
	res := &runlogv1.LeaseRunsResponse{}
	for i := range min(req.GetMax(), 2) {
		run := []string{"run-3", "run-4"}[i]
		res.Leases = append(res.Leases, &runlogv1.Lease{RunId: run, Fence: uint64(i + 2), ExpireTime: seconds(30), StartAttempt: i + 1, Queue: "default",
			Run: &runlogv1.Run{RunId: run, TenantId: "acme", PlanRef: &runlogv1.PlanRef{PlanId: "build", PlanVersion: "3"}}})
	}
	return res, nil
}

func (f *fakeQueues) ReleaseLease(_ context.Context, req *runlogv1.ReleaseLeaseRequest) (*runlogv1.ReleaseLeaseResponse, error) {
	f.asked = req
	switch {
	case req.GetFence() == 1:
		return nil, asStatus(&contract.Error{Reason: contract.ReasonLeaseLost, Message: "lease 1 of run \"run-3\" has ended. " + contract.ReasonLeaseLost.Info().Help})
	case req.GetOutcome() == runlogv1.LeaseOutcome_FAILED:
		return &runlogv1.ReleaseLeaseResponse{State: runlogv1.QueuedRunState_DELAYED, NotBefore: seconds(60), Position: "p"}, nil
	default:
		return &runlogv1.ReleaseLeaseResponse{State: runlogv1.QueuedRunState_RUNNING, Idempotent: req.GetFence() == 3, Position: "p"}, nil
	}
}

func (f *fakeQueues) RequestRun(_ context.Context, req *runlogv1.RequestRunRequest) (*runlogv1.RequestRunResponse, error) {
	f.asked = req
	run := &runlogv1.Run{RunId: req.GetRunId(), TenantId: req.GetTenantId(), PlanRef: req.GetPlanRef(), Labels: req.GetLabels()}
	switch {
	case req.GetRunRequestId() == "full":
		return nil, asStatus(&contract.Error{Reason: contract.ReasonRunRequestConflict, Message: "another request. " + contract.ReasonRunRequestConflict.Info().Help})
	case req.GetRunRequestId() == "twice":
		return &runlogv1.RequestRunResponse{Run: run, Disposition: runlogv1.Disposition_READY, Idempotent: true}, nil
	case req.NotBefore != nil:
		return &runlogv1.RequestRunResponse{Run: run, Disposition: runlogv1.Disposition_DELAYED, NotBefore: req.GetNotBefore()}, nil
	}
	return &runlogv1.RequestRunResponse{Run: run, Disposition: runlogv1.Disposition_QUEUED, Position: 12}, nil
}

var drawnID = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// goldenLines runs command lines, in which a backslash is a blank in an argument, one after the
// other against one fake, and compares what users see.
func goldenLines(t *testing.T, name string, lines ...string) {
	t.Helper()
	var got strings.Builder
	fake := &fakeServer{}
	for _, line := range lines {
		args := strings.Fields(line)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], `\`, " ")
		}
		s := &invocation{args: args}
		s.do(t.Context(), t, fake)
		got.WriteString(drawnID.ReplaceAllString(s.text(), "<id>"))
	}
	golden(t, name, got.String())
}

const webProd = " --tenant acme --project web --environment prod"

// TestGoldenQueues shows what operators see of queues (QUE-10).
func TestGoldenQueues(t *testing.T) {
	t.Parallel()
	goldenLines(t, "queue-show",
		"queue ls --tenant acme", "queue ls --limit 1", "queue ls -o json", "queue ls --project web", "queue ls nightly",
		"queue show"+webProd, "queue show nightly -o json"+webProd, "queue show none"+webProd, "queue show --tenant acme", "queue show a b",
		"queue show --runs"+webProd, "queue show --state ready,LEASED -o json"+webProd, "queue show --state lost"+webProd)
	goldenLines(t, "queue-put",
		"queue put --max-running 10 --on-full delay --delay 45s"+webProd, "queue put nightly --lease-ttl 1m --max-queued 0 -o json"+webProd,
		"queue put --on-full wait"+webProd, "queue put --lease-ttl soon"+webProd, "queue put --max-running 3", "queue put --max-running -1", "queue put --max-running 18446744073709551616",
		"queue pause nightly"+webProd, "queue resume"+webProd+" -o json",
		"queue show held"+webProd, "queue pause held"+webProd)
	goldenLines(t, "queue-steer",
		"queue cancel run-3 --reason replaced", "queue cancel run-3 -o json", "queue cancel run-1", "queue cancel",
		"queue prioritize run-3 9", "queue prioritize run-3 9 -o json", "queue prioritize run-3 high", "queue prioritize run-3", "queue requeue run-1", "queue requeue run-3", "queue requeue run-1 -o json", "queue requeue", "queue cancle run-3")
	goldenLines(t, "queue-lease",
		"queue lease --worker host-1", "queue lease nightly --worker host-1 --max 2 --wait 10s --ttl 1m -o json"+webProd,
		"queue lease --tenant acme", "queue lease nightly --worker host-1 --tenant acme",
		"queue release run-3 --fence 2 --outcome started", "queue release run-3 --fence 3 --outcome started", "queue release run-3 --fence 2 --outcome failed --error no\\worker",
		"queue release run-3 --fence 2 --outcome failed -o json", "queue release run-3 --fence 1 --outcome skipped", "queue release run-3 --fence 2", "queue release run-3 --outcome started")
	goldenLines(t, "queue-help", "queue --help", "queue ls --help", "queue show --help", "queue put --help", "queue pause --help", "queue resume --help",
		"queue cancel --help", "queue prioritize --help", "queue requeue --help", "queue lease --help", "queue release --help")
}

// TestGoldenRequest shows what a user sees with a request for a run (QUE-1).
func TestGoldenRequest(t *testing.T) {
	t.Parallel()
	const ask = "run request --plan build@3" + webProd
	goldenLines(t, "run-request",
		ask+" --id invoice-4711 --run run-7", ask+" --id twice --run run-7", ask+" --run run-7", ask+" --id late --run run-7 --not-before 2026-02-11T11:00",
		ask+" --id full --run run-7", ask+" --id i --run run-7 --label team=payments --label a= -o json",
		"run request --tenant acme --plan build@3", "run request", ask+" --id=", ask+" --plan build", ask+" --label team", ask+" --run-context [1]", ask+" --plan-migration [1]", ask+" --not-before soon",
		"run request now", "run --help", "run request --help")
}

// TestQueueFlags: the flags are in the requests, and what is not given is absent (QUE-1, QUE-3).
func TestQueueFlags(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"queue put" + webProd:                         `{"tenantId":"acme","projectId":"web","environmentId":"prod","settings":{}}`,
		"queue put nightly --max-running 0" + webProd: `{"tenantId":"acme","projectId":"web","environmentId":"prod","queue":"nightly","settings":{"maxRunning":"0"}}`,
		"queue put --max-queued 7 --on-full Reject --delay 2s --lease-ttl 3s --max-start-attempts 4 --aging-period 5s --drain-timeout 6s" + webProd: `{"tenantId":"acme","projectId":"web","environmentId":"prod",` +
			`"settings":{"maxQueued":"7","onFull":"REJECT","delay":"2s","leaseTtl":"3s","maxStartAttempts":4,"agingPeriod":"5s","drainTimeout":"6s"}}`,
		// The server refuses it.
		"queue lease --worker w --wait=-1h":                                      `{"worker":"w","max":1,"wait":"-3600s"}`,
		"queue lease nightly --worker w --max 2 --wait 10s --ttl 1m" + webProd:   `{"tenantId":"acme","projectId":"web","environmentId":"prod","queue":"nightly","worker":"w","max":2,"wait":"10s","ttl":"60s"}`,
		"queue lease --worker w":                                                 `{"worker":"w","max":1}`,
		"queue release r --fence 2 --outcome started --engine-run-ref e/1":       `{"runId":"r","fence":"2","outcome":"STARTED","engineRunRef":"e/1"}`,
		"queue release r --fence 2 --outcome failed --error no --retry-after 1m": `{"runId":"r","fence":"2","outcome":"FAILED","error":"no","retryAfter":"60s"}`,
		"queue requeue r":                            `{"runId":"r"}`,
		"queue prioritize r 0":                       `{"runId":"r","priority":0}`,
		"queue show --state ready,delayed" + webProd: `{"tenantId":"acme","projectId":"web","environmentId":"prod","state":["READY","DELAYED"],"pageSize":100}`,
		"run request --plan a@b@3 --id i" + webProd:  `{"runRequestId":"i","tenantId":"acme","projectId":"web","environmentId":"prod","planRef":{"planId":"a@b","planVersion":"3"}}`,
		`run request --plan a@3 --id i --plan-expires 2027-01-31T00:00:00Z --plan-evolution v1.0→v1.2 --plan-migration {"sourceVersion":"v1.0","targetVersion":"v1.2"}` + webProd: `{"runRequestId":"i",` +
			`"tenantId":"acme","projectId":"web","environmentId":"prod","planRef":{"planId":"a","planVersion":"3","expiresAt":"2027-01-31T00:00:00Z","schemaEvolutionPath":"v1.0→v1.2",` +
			`"migrationHint":{"sourceVersion":"v1.0","targetVersion":"v1.2"}}}`,
		`run request --plan a@3 --id i --run r --queue q --priority 0 --engine mock --triggered-by anna --label k=v=w --run-context {"a":[1]} --plan-uri file:///p --plan-sha256 ab --plan-schema v1 --not-before 2026-02-11` + webProd: `{"runRequestId":"i","runId":"r",` +
			`"tenantId":"acme","projectId":"web","environmentId":"prod","queue":"q","planRef":{"uri":"file:///p","sha256":"ab","schemaVersion":"v1","planId":"a","planVersion":"3"},"priority":0,` +
			`"notBefore":"2026-02-11T00:00:00Z","engineType":"mock","labels":{"k":"v=w"},"context":{"a":[1]},"triggeredBy":"anna"}`,
	} {
		fake := &fakeServer{}
		s := &invocation{args: strings.Fields(line)}
		s.do(t.Context(), t, fake)
		if got := plainJSON(t, fake.fakeQueues.asked); s.code != 0 || got != want {
			t.Errorf("%s asks\n%s\nwant\n%s\n%s", line, got, want, s.text())
		}
	}
}

// plainJSON is a message as JSON without the blanks that protojson draws.
func plainJSON(t *testing.T, m proto.Message) string {
	t.Helper()
	text, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var plain bytes.Buffer
	if err := json.Compact(&plain, text); err != nil {
		t.Fatal(err)
	}
	return plain.String()
}

// TestNotBeforeAhead: a time may be ahead of now.
func TestNotBeforeAhead(t *testing.T) {
	t.Parallel()
	fake := &fakeServer{}
	s := &invocation{args: strings.Fields("run request --plan a@3 --id i --not-before +1d2h" + webProd)}
	s.do(t.Context(), t, fake)
	req, ok := fake.fakeQueues.asked.(*runlogv1.RequestRunRequest)
	if !ok || s.code != 0 {
		t.Fatal(s.text())
	}
	if ahead := time.Until(req.GetNotBefore().AsTime()); ahead > 26*time.Hour || ahead < 25*time.Hour {
		t.Errorf("the run waits for %v", ahead)
	}
}
