package rivals

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
)

// targets are what a tenant has before the other one attacks it.
type targets struct {
	secret map[string]string // by scheme
	hidden []byte            // a plan in its folder
	answer string            // of its sink
	worker string            // the name of its runner

	runs         []string // that stay as they are
	queue        string
	leased       string // a run
	fence        uint64
	subscription string
	deliveries   []string // of it, which are under way
	webhook      string   // a subscription
	stepRun      string   // waits for its attestation
	manifest     string
	before       map[string]string // what is there, by name
}

// loot is what a tenant knows of the other one: values of fields by their names.
type loot map[string][]string

// settle makes the targets of a tenant, and hands the ids, tokens of pages and fences to the other
// one. It has no secret, payload, label or context.
func (a *tenant) settle() {
	t := a.w.t
	t.Helper()
	ctx, own := t.Context(), &a.own
	var failed error
	must := func(err error) {
		t.Helper()
		if err != nil && failed == nil {
			failed = err
			t.Fatal(a.name, err)
		}
	}
	log, engineRef, plan, signal := "log-"+a.mark(), "ref-"+a.mark(), "plan-"+a.mark(), "signal-"+a.mark()
	triggered := "person-" + a.mark()
	_, err := a.c.CreateRun(ctx, &runlogv1.CreateRunRequest{Run: &runlogv1.Run{
		RunId: log, TenantId: a.name, ProjectId: project, EnvironmentId: environment, EngineRunRef: &engineRef, TriggeredBy: &triggered,
		PlanRef: &runlogv1.PlanRef{PlanId: plan, PlanVersion: "1"}, Labels: map[string]string{"owner": a.mark()},
	}})
	must(err)
	for _, kind := range []string{"RunStarted", "Noted", "StepStarted"} {
		_, err = a.c.AppendEvents(ctx, &runlogv1.AppendEventsRequest{RunId: log, Events: []*runlogv1.EventWrite{a.event(kind, plan)}})
		must(err)
	}
	_, err = a.c.SendSignal(ctx, &runlogv1.SendSignalRequest{RunId: log, SignalId: signal, SignalType: "PAUSE", Reason: a.mark()})
	must(err)

	own.queue = "queue-" + a.mark()
	// What follows has ids that the other tenant does not know.
	for _, id := range []string{"secret-run-" + a.mark(), "secret-run-" + a.mark()} {
		_, err = a.c.RequestRun(ctx, &runlogv1.RequestRunRequest{
			RunRequestId: id, RunId: id, TenantId: a.name, ProjectId: project, EnvironmentId: environment, Queue: "secret-queue-" + a.mark(),
			PlanRef: &runlogv1.PlanRef{PlanId: "secret-plan-" + a.mark(), PlanVersion: "1"},
		})
		must(err)
	}
	_, err = a.c.CreateSubscription(ctx, &runlogv1.CreateSubscriptionRequest{
		SubscriptionId: "secret-" + a.mark(), Filter: &runlogv1.SubscriptionFilter{TenantId: a.name}, Start: &runlogv1.StartFrom{From: &runlogv1.StartFrom_Beginning{Beginning: true}},
		Delivery: &runlogv1.Delivery{To: &runlogv1.Delivery_Pull{Pull: &runlogv1.PullDelivery{AckTimeout: durationpb.New(time.Hour)}}},
	})
	must(err)
	for _, id := range []string{"leased-" + a.mark(), "queued-" + a.mark()} {
		fields, err := structpb.NewStruct(map[string]any{"password": a.mark()})
		must(err)
		_, err = a.c.RequestRun(ctx, &runlogv1.RequestRunRequest{
			RunRequestId: id, RunId: id, TenantId: a.name, ProjectId: project, EnvironmentId: environment, Queue: own.queue,
			PlanRef: &runlogv1.PlanRef{PlanId: plan, PlanVersion: "1"}, Context: fields, Labels: map[string]string{"owner": a.mark()},
		})
		must(err)
		own.runs = append(own.runs, id)
		if own.leased == "" {
			own.leased = id
			got, err := a.c.LeaseRuns(ctx, &runlogv1.LeaseRunsRequest{TenantId: a.name, ProjectId: project, EnvironmentId: environment, Queue: own.queue,
				Worker: own.worker, Max: 1, Ttl: durationpb.New(time.Hour)})
			must(err)
			own.fence = got.GetLeases()[0].GetFence()
		}
	}
	own.runs = append(own.runs, log)

	own.manifest = a.must("POST", "/api/manifests", fmt.Sprintf(`{"name":%q,"steps":[{"step_key":"A","executor":"noop","input":{"is":%q}},
		{"step_key":"B","step_type":"compute","depends_on":["A"],"compute_contract":{"executor":%q,"inputs":["x"],"outputs":["y"],"verification":"operator_attest"}}]}`,
		a.mark(), a.mark(), a.mark()))["id"].(string)
	waiting := a.must("POST", "/api/runs", fmt.Sprintf(`{"manifest_id":%q,"initiated_by":%q}`, own.manifest, triggered))["id"].(string)
	run := a.must("GET", "/api/runs/"+waiting+"?wait=1h", "")
	own.stepRun = run["steps"].([]any)[1].(map[string]any)["step_run_id"].(string)
	own.runs = append(own.runs, waiting)
	done := a.execute("none", a.plan(
		step("A", "command", `{"argv":["printenv","X"],"secretEnv":{"X":"env:DB"}}`, "env:DB"),
		step("B", "http", fmt.Sprintf(`{"url":%q,"secretHeaders":{"X-Own":{"ref":"file:db"},"X-Vault":{"ref":"vault:kv/db#password"}}}`, a.sink.URL), "file:db", "vault:kv/db#password"),
		step("C", "noop", fmt.Sprintf(`{"is":%q}`, a.mark()))))
	if done.status != "success" {
		t.Fatalf("%s: the plan of its own has %+v", a.name, done)
	}
	own.runs = append(own.runs, done.run)
	sum := sha256.Sum256(own.hidden)
	for _, uri := range []string{"file://" + filepath.Join(a.dir, "plans", "hidden.json"), a.w.plans.URL + "/" + a.name + "/hidden.json"} {
		if got := a.execute("none", "{}", func(r *runlogv1.RequestRunRequest) {
			r.PlanRef = &runlogv1.PlanRef{Uri: uri, Sha256: hex.EncodeToString(sum[:]), SchemaVersion: "v1.2", PlanId: "hidden", PlanVersion: "1"}
		}); got.status != "success" {
			t.Fatalf("%s: its own plan at %s has %+v", a.name, uri, got)
		}
	}

	own.subscription, own.webhook = "pull-"+a.mark(), "hook-"+a.mark()
	_, err = a.c.CreateSubscription(ctx, &runlogv1.CreateSubscriptionRequest{
		SubscriptionId: own.subscription, Filter: &runlogv1.SubscriptionFilter{TenantId: a.name}, Start: &runlogv1.StartFrom{From: &runlogv1.StartFrom_Beginning{Beginning: true}},
		Delivery: &runlogv1.Delivery{To: &runlogv1.Delivery_Pull{Pull: &runlogv1.PullDelivery{AckTimeout: durationpb.New(time.Hour)}}},
	})
	must(err)
	_, err = a.c.CreateSubscription(ctx, &runlogv1.CreateSubscriptionRequest{
		SubscriptionId: own.webhook, Filter: &runlogv1.SubscriptionFilter{TenantId: a.name}, Start: &runlogv1.StartFrom{From: &runlogv1.StartFrom_Now{Now: true}}, Paused: true,
		Delivery: &runlogv1.Delivery{To: &runlogv1.Delivery_Webhook{Webhook: &runlogv1.WebhookDelivery{Url: "https://hooks.example/" + a.mark(), SecretRef: "hook", Headers: map[string]string{"X-Key": a.mark()}}}},
	})
	must(err)
	pulled, err := a.c.Pull(ctx, &runlogv1.PullRequest{SubscriptionId: own.subscription, TenantId: a.name, Max: 3, Wait: durationpb.New(10 * time.Second)})
	must(err)
	for _, d := range pulled.GetDeliveries() {
		own.deliveries = append(own.deliveries, d.GetDeliveryId())
	}

	a.other.loot = loot{
		"run_id": own.runs, "rerun_of": own.runs, "run_request_id": own.runs, "run_id_prefix": {log[:8], "log-", ""}, "queue": {own.queue}, "worker": {own.worker},
		"subscription_id": {own.subscription, own.webhook}, "delivery_ids": own.deliveries, "step_id": {"A", "B", own.stepRun}, "plan_id": {plan, own.manifest},
		"engine_run_ref": {engineRef}, "previous_engine_run_ref": {engineRef}, "attested_by": {triggered, "token:" + a.names["writer"]}, "triggered_by": {triggered},
		"signal_id": {signal}, "attestation_id": {signal}, "uri": a.hiddenURIs(), "sha256": {hex.EncodeToString(sum[:])}, "fence": {fmt.Sprint(own.fence)},
		"name": {a.names["writer"], a.name}, "token_id": {a.names["writer"]}, "secret_ref": {"../" + a.name + "/hook", "hook"},
	}
	a.stealTokens(a.other.loot, log)
	for _, values := range a.other.loot {
		for _, v := range values {
			a.w.check.sends(a.other.name, []byte(v))
		}
	}
	own.before = a.state()
}

// event makes an event with a payload of the tenant.
func (a *tenant) event(kind, plan string) *runlogv1.EventWrite {
	e := &runlogv1.EventWrite{
		EventType: kind, TenantId: a.name, ProjectId: project, EnvironmentId: environment, PlanId: plan, PlanVersion: "1",
		LogicalAttemptId: 1, EngineAttemptId: 1, EmittedAt: timestamppb.Now(), EmittedBy: a.own.worker,
		PayloadForm: &runlogv1.EventWrite_PayloadJson{PayloadJson: fmt.Appendf(nil, `{"password":%q}`, a.mark())},
	}
	if kind == "StepStarted" {
		e.StepId = "A"
	}
	return e
}

// stealTokens adds what the answers to the tenant have: tokens of pages and watches, and positions.
func (a *tenant) stealTokens(l loot, run string) {
	t := a.w.t
	t.Helper()
	ctx := t.Context()
	page, err := a.c.ListRunsPage(ctx, &runlogv1.ListRunsRequest{TenantId: a.name, PageSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	l["page_token"] = append(l["page_token"], page.GetNextPageToken())
	queued, err := a.c.ListQueuedRuns(ctx, &runlogv1.ListQueuedRunsRequest{TenantId: a.name, ProjectId: project, EnvironmentId: environment, Queue: a.own.queue, PageSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	l["page_token"] = append(l["page_token"], queued.GetNextPageToken())
	for got, err := range a.c.WatchRun(ctx, &runlogv1.WatchRunRequest{RunId: run, View: runlogv1.WatchView_EVENT}) {
		if err != nil {
			t.Fatal(err)
		}
		if token := got.GetResumeToken(); token != "" {
			l["resume_token"] = append(l["resume_token"], token)
			break
		}
	}
	for got, err := range a.c.WatchRuns(ctx, &runlogv1.WatchRunsRequest{TenantId: a.name, IncludeExisting: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if token := got.GetResumeToken(); token != "" {
			l["resume_token"] = append(l["resume_token"], token)
			break
		}
	}
	snapshot, err := a.c.GetSnapshot(ctx, &runlogv1.GetSnapshotRequest{RunId: run})
	if err != nil {
		t.Fatal(err)
	}
	l["if_none_match"] = []string{snapshot.GetEtag(), "*"}
	appended, err := a.c.SetEngineRunRef(ctx, &runlogv1.SetEngineRunRefRequest{RunId: run, EngineRunRef: l["engine_run_ref"][0]})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"position", "min_position", "after_position"} {
		l[name] = []string{appended.GetPosition(), "0"}
	}
}

// state returns what the other tenant must not change.
func (a *tenant) state() map[string]string {
	t := a.w.t
	t.Helper()
	ctx, all := t.Context(), map[string]string{}
	add := func(name string, m proto.Message, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(name, err)
		}
		text, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		all[name] += string(text)
	}
	for _, id := range a.own.runs {
		run, err := a.c.GetRun(ctx, &runlogv1.GetRunRequest{RunId: id})
		add("run "+id, run, err)
		for e, err := range a.c.ReadEvents(ctx, &runlogv1.ReadEventsRequest{RunId: id}) {
			add("events of "+id, e, err)
			a.w.check.receives(a.name, "any", "events", []byte(all["events of "+id]))
		}
	}
	in := &runlogv1.ListQueuedRunsRequest{TenantId: a.name, ProjectId: project, EnvironmentId: environment, Queue: a.own.queue}
	queued, err := a.c.ListQueuedRuns(ctx, in)
	for _, r := range queued.GetRuns() {
		r.LeaseExpireTime = nil // The tenant's own worker renews the lease.
		add("queued runs", r, err)
	}
	queue, err := a.c.GetQueue(ctx, &runlogv1.GetQueueRequest{TenantId: a.name, ProjectId: project, EnvironmentId: environment, Queue: a.own.queue})
	add("settings of the queue", queue.GetQueue().GetSettings(), err)
	for _, id := range []string{a.own.subscription, a.own.webhook} {
		s, err := a.c.GetSubscription(ctx, &runlogv1.GetSubscriptionRequest{SubscriptionId: id, TenantId: a.name})
		if s.GetSubscription() != nil {
			s.Subscription.Lag, s.Subscription.Position = nil, "" // The tenant's own runs go on.
		}
		add("subscription "+id, s, err)
	}
	return all
}

// renew renews the lease of the tenant's worker, which lasts for an hour at most.
func (a *tenant) renew(t testing.TB) {
	t.Helper()
	if _, err := a.c.RenewLease(a.w.t.Context(), &runlogv1.RenewLeaseRequest{RunId: a.own.leased, Fence: a.own.fence}); err != nil {
		t.Errorf("%s cannot renew its lease: %v", a.name, err)
	}
}

// wantUntouched requires that everything of the tenant is as it was, that its worker still has the
// lease, and its consumer the deliveries.
func (a *tenant) wantUntouched(t testing.TB) {
	t.Helper()
	for name, now := range a.state() {
		if before := a.own.before[name]; now != before {
			t.Errorf("%s of %s has changed:\n%q\n%q", name, a.name, before, now)
		}
	}
	a.renew(t)
	acked, err := a.c.Ack(a.w.t.Context(), &runlogv1.AckRequest{SubscriptionId: a.own.subscription, TenantId: a.name, DeliveryIds: a.own.deliveries})
	if err != nil || int(acked.GetAcknowledged()) != len(a.own.deliveries) {
		t.Errorf("%s acknowledges %d of %d deliveries: %v", a.name, acked.GetAcknowledged(), len(a.own.deliveries), err)
	}
}
