package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	enums "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	sdkclient "go.temporal.io/sdk/client"
	"google.golang.org/protobuf/encoding/protojson"

	"runlog/client"
	"runlog/client/clienttest"
	"runlog/client/watcher"
	"runlog/engine/plan"
	"runlog/engine/program/programtest"
	"runlog/engine/temporal"
	"runlog/engine/temporal/namespaces"
	"runlog/engine/temporal/temporaltest"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/await"
	"runlog/testbed/seed"
)

func TestMain(m *testing.M) { programtest.Main(m, main) }

// bed is a real Temporal server, a server of runlog, and a worker in a process of its own.
type bed struct {
	t        *testing.T
	temporal *temporaltest.Server
	server   *clienttest.Server
	log      *client.Client
	sdk      sdkclient.Client
	dir      string
	worker   *programtest.Process // the last one
	said     []*await.Words       // of all workers, one after the other
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{t: t, temporal: temporaltest.Start(t), server: clienttest.Start(t), dir: t.TempDir()}
	b.log, b.sdk = b.server.Client(client.Options{}), b.temporal.Client(t, "default")
	return b
}

func (b *bed) args(verb string, more ...string) []string {
	return append([]string{verb, "--temporal", b.temporal.Address, "--server", b.server.Addr(), "--tenant", "acme", "--project", "web"}, more...)
}

func (b *bed) command(verb string, more ...string) (string, error) {
	var out bytes.Buffer
	err := run(context.Background(), &out, &out, b.args(verb, more...))
	return out.String(), err
}

func (b *bed) startWorker() {
	b.t.Helper()
	b.worker = programtest.Start(b.t, programtest.Command(b.args("worker", "--allow", "file://"+b.dir, "--sweep-every", "2s", "--heartbeat", "3s", "--task-timeout", "2s")...))
	b.said = append(b.said, b.worker.Said)
}

// plan writes a plan of some steps, each of which depends on the one two before it.
func (b *bed) plan(id string, steps int) string {
	b.t.Helper()
	var list []string
	for i := range steps {
		on := ""
		if i >= 2 {
			on = fmt.Sprintf(`,"dependsOn":["s%d"]`, i-2)
		}
		list = append(list, fmt.Sprintf(`{"stepId":"s%d","type":"command","class":%q,"inputs":{"argv":["sleep","0.%d"]}%s}`, i, []string{"control", "data"}[i%2], i%4, on))
	}
	path := filepath.Join(b.dir, id+".json")
	body := fmt.Sprintf(`{"schemaVersion":"v1.2","planId":%q,"planVersion":"1","steps":[%s]}`, id, strings.Join(list, ","))
	if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
		b.t.Fatal(err)
	}
	return path
}

// ends waits for the end of a run. If workers were killed again and again while they decided about
// it, Temporal waits up to ten minutes before another one decides.
func (b *bed) ends(run string) runlogv1.RunStatus_Value {
	b.t.Helper()
	var s *runlogv1.RunSnapshot
	defer func() {
		if s.GetCompletedAt() == nil { // The wait has ended the test.
			b.t.Logf("run %s does not end: %v\n%s", run, s, tail(fmt.Sprint(b.said)))
		}
	}()
	await.Poll(b.t, "the end of run "+run, func() bool {
		b.temporal.Revive(b.t)
		if res, err := b.log.GetSnapshot(context.Background(), &runlogv1.GetSnapshotRequest{RunId: run}); err == nil {
			s = res.GetSnapshot()
		}
		return s.GetCompletedAt() != nil
	})
	if s.GetInconsistencyCount() > 0 {
		b.t.Errorf("run %s has the inconsistencies %v", run, s.GetInconsistencies())
	}
	return s.GetStatus()
}

func tail(text string) string { return text[max(0, len(text)-4000):] }

// verify compares the events of a run with its plan, and with the histories of its workflows: each
// end of a step that Temporal has is in the log, and each one of the log is in Temporal.
func (b *bed) verify(run string, steps int) {
	b.t.Helper()
	got, ends := map[string]int{}, map[string]bool{}
	for r, err := range b.log.ReadEvents(context.Background(), &runlogv1.ReadEventsRequest{RunId: run}) {
		if err != nil {
			b.t.Fatal(err)
		}
		got[r.GetEventType()+" "+r.GetStepId()]++
		if r.GetEventType() == "StepCompleted" {
			ends[fmt.Sprint(r.GetStepId(), " ", r.GetRunSeq())] = true
		}
	}
	want := map[string]int{"RunStarted ": 1, "RunCompleted ": 1}
	for i := range steps {
		want[fmt.Sprintf("StepStarted s%d", i)], want[fmt.Sprintf("StepCompleted s%d", i)] = 1, 1
	}
	for what, n := range want {
		if got[what] != n {
			b.t.Errorf("run %s has %q %d times", run, what, got[what])
		}
		delete(got, what)
	}
	if len(got) > 0 {
		b.t.Errorf("run %s also has %v", run, got)
	}
	seen := b.answers(run)
	for end := range ends {
		if !slices.Contains(seen, end) {
			b.t.Errorf("run %s: the log has the end %q, and Temporal does not: %q", run, end, seen)
		}
	}
	if len(seen) != len(ends) {
		b.t.Errorf("run %s: Temporal has the ends %q, and the log %v", run, seen, ends)
	}
}

// answers returns the ends of steps in the histories of all workflows of a run.
func (b *bed) answers(run string) (list []string) {
	b.t.Helper()
	id := temporal.DefaultPrefix + run
	flows, err := b.sdk.ListWorkflow(context.Background(), &workflowservice.ListWorkflowExecutionsRequest{Query: "WorkflowId = '" + id + "'"})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, x := range flows.GetExecutions() {
		text, err := namespaces.History(context.Background(), b.sdk, "default", id, x.GetExecution().GetRunId())
		if err != nil {
			b.t.Fatal(err)
		}
		var h historypb.History
		if err := protojson.Unmarshal(text, &h); err != nil {
			b.t.Fatal(err)
		}
		steps := map[int64]string{}
		for _, e := range h.GetEvents() {
			switch e.GetEventType() {
			case enums.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
				if a := e.GetActivityTaskScheduledEventAttributes(); a.GetActivityType().GetName() == "executeStep" {
					id, _, _ := strings.Cut(a.GetActivityId(), "/")
					steps[e.GetEventId()] = id
				}
			case enums.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
				a := e.GetActivityTaskCompletedEventAttributes()
				if id := steps[a.GetScheduledEventId()]; id != "" {
					var end struct{ Seq uint64 }
					if err := json.Unmarshal(a.GetResult().GetPayloads()[0].GetData(), &end); err != nil {
						b.t.Fatal(err)
					}
					list = append(list, fmt.Sprint(id, " ", end.Seq))
				}
			}
		}
	}
	return list
}

// TestChaosENG2: workers, nodes of runlog and Temporal are killed at random. Every run ends, each
// step has one terminal event, and the log and Temporal agree.
func TestChaosENG2(t *testing.T) {
	b := newBed(t)
	rounds := 6
	if text := os.Getenv("TEST_RUNLOG_TEMPORAL_ROUNDS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	random := seed.Rand(t)
	const steps = 8
	plan := b.plan("chaos", steps)
	b.startWorker()
	var runs []string
	var kills [3]int
	for round := range rounds {
		run := fmt.Sprint("chaos-", round)
		// The worker makes the search attributes known, and a Temporal server that begins looks for
		// its namespaces every ten seconds.
		await.Poll(t, "the start of "+run, func() bool {
			_, err := b.command("start", "--run", run, "--heartbeat", "3s", "--task-timeout", "2s", "--continue-steps", "3", plan)
			if err != nil {
				b.temporal.Revive(t)
			}
			return err == nil
		})
		runs = append(runs, run)
		time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
		what := random.IntN(len(kills))
		kills[what]++
		switch what {
		case 0:
			b.worker.Kill()
			b.startWorker()
		case 1:
			b.server.Restart()
		case 2:
			b.temporal.Kill()
			b.temporal.Restart(t)
		}
	}
	for _, run := range runs {
		if status := b.ends(run); status != runlogv1.RunStatus_COMPLETED {
			t.Errorf("run %s is %v", run, status)
		}
		b.verify(run, steps)
	}
	t.Logf("%d runs; %d kills of workers, %d of nodes, %d of Temporal", len(runs), kills[0], kills[1], kills[2])
}

// TestSweepAdoptsENG1: a Temporal server that has lost its database gets a run again only if an
// operator says so. Until then the worker and the operator hear which namespace they see.
func TestSweepAdoptsENG1(t *testing.T) {
	b := newBed(t)
	const steps = 20
	plan := b.plan("adopted", steps)
	b.startWorker()
	await.Poll(t, "the start of the run", func() bool {
		_, err := b.command("start", "--run", "adopted", "--heartbeat", "3s", "--task-timeout", "2s", plan)
		return err == nil
	})
	for e, err := range watcher.Events(await.Context(t), b.log, "adopted", 0, "") {
		if err != nil {
			t.Fatal(err)
		}
		if e.GetEventType() == "StepCompleted" {
			break
		}
	}
	b.worker.Kill()
	b.temporal.Kill()
	b.temporal.File += ".new"
	b.temporal.Restart(t)
	b.startWorker()
	await.Poll(t, "the namespace of the new server", func() bool {
		_, err := b.command("sweep")
		if err == nil {
			t.Fatal("the sweep has found the run")
		}
		return strings.Contains(err.Error(), "has the id")
	})
	_, err := b.command("sweep")
	programtest.WantError(t, "a sweep", err, `run "adopted"`, "temporal://", "--temporal", "sweep --adopt")
	await.Poll(t, "the adoption", func() bool {
		out, err := b.command("sweep", "--adopt")
		return err == nil && strings.Contains(out, "started again: 1")
	})
	if status := b.ends("adopted"); status != runlogv1.RunStatus_COMPLETED {
		t.Errorf("the run is %v", status)
	}
	for r, err := range b.log.ReadEvents(t.Context(), &runlogv1.ReadEventsRequest{RunId: "adopted"}) {
		if err != nil {
			t.Fatal(err)
		}
		if r.GetEventType() == "StepFailed" {
			t.Errorf("step %s has failed", r.GetStepId())
		}
	}
}

// TestPage: the commands of the page are those of this program, with flags that it has, and the
// worker executes its plan.
func TestPage(t *testing.T) {
	page := programtest.ReadPage(t, filepath.Join("..", "..", "..", "..", "docs", "temporal.md"))
	lines := page.Commands(name)
	for _, line := range lines {
		if _, _, err := parse(new(bytes.Buffer), new(bytes.Buffer), strings.Fields(line)); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	if len(lines) < 6 {
		t.Errorf("the page has the commands %q", lines)
	}
	body := page.Plan()
	if p, _, err := plan.Parse([]byte(body), plan.Options{Capabilities: []string{"executor:command", "executor:noop"}}); err != nil || p.PlanID != "nightly" {
		t.Errorf("the plan of the page: %v\n%s", err, body)
	}
}
