package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	enums "go.temporal.io/api/enums/v1"
	sdkclient "go.temporal.io/sdk/client"

	"runlog/engine/program"
	"runlog/engine/program/programtest"
	"runlog/engine/temporal"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/await"
)

// TestFlags: each fault of a command line is refused with what to write in its place.
func TestFlags(t *testing.T) {
	for line, want := range map[string][]string{
		"":                                     {"name a command"},
		"run":                                  {`unknown command "run"`, "name a command"},
		"worker now":                           {`worker takes flags alone, and got "now"`},
		"signal PAUSE --run run-1":             {`signal takes one argument, TYPE, behind its flags, and got "PAUSE --run run-1"`},
		"worker --run run-1":                   {"flag provided but not defined: -run"},
		"worker":                               {"--allow is missing", "file:///srv/plans"},
		"worker --allow=":                      {"--allow is empty"},
		"worker --grace 2h":                    {"--grace is 2h0m0s: write 1s to 1h"},
		"worker --class gpu":                   {`--class is "gpu": write control, data or isolation`},
		"worker --class isolation":             {"--class isolation needs --isolation"},
		"worker --class data --isolation acme": {"--isolation needs --class isolation"},
		"worker --project shop":                {`--project is "shop"`, "name the tenant too"},
		"worker --environment=":                {"--environment is empty"},
		"worker --namespace=":                  {"--namespace is empty"},
		"worker --temporal localhost":          {`--temporal is "localhost"`, "host:port"},
		"worker --temporal http://127.0.0.1:1": {`--temporal is "http://127.0.0.1:1"`, "host:port"},
		"worker --workflow-prefix=":            {"--workflow-prefix is empty", "such as runlog/"},
		"worker --queue=":                      {"--queue is empty"},
		"worker --sweep-every -1s --queue=":    {"--sweep-every is -1s", "--queue is empty"},
		"cleanup --idle -1h":                   {"--idle is -1h"},
	} {
		_, _, err := parse(new(bytes.Buffer), new(bytes.Buffer), strings.Fields(line))
		programtest.WantError(t, line, err, want...)
	}
	if _, _, err := parse(new(bytes.Buffer), new(bytes.Buffer), []string{"--help"}); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("--help: %v", err)
	}
}

// TestAway: each error about a server that does not answer, or that is another one, names the
// operation, the cause and the remedy. No run is created that Temporal cannot start.
func TestAway(t *testing.T) {
	b := newBed(t)
	plan, nothing := b.plan("away", 1), programtest.Closed
	all := func(flags ...string) [][]string {
		return [][]string{slices.Concat([]string{"worker", "--allow", "file:///none"}, flags), slices.Concat([]string{"start"}, flags, []string{"--run", "away-1", plan}),
			slices.Concat([]string{"history"}, flags, []string{"--run", "away-1"})}
	}
	try := func(lines [][]string, want ...string) {
		t.Helper()
		for _, line := range lines {
			said, err := b.impatient(line[0], line[1:]...)
			programtest.WantError(t, strings.Join(line, " "), err, append(want, "cannot ")...)
			if warned := strings.Count(said, "cannot reach the server of the engine"); warned > 1 || program.ExitCode(err) != program.ExitFailed {
				t.Errorf("%s: %d warnings, exit code %d:\n%s", strings.Join(line, " "), warned, program.ExitCode(err), said)
			}
		}
	}
	try(all("--temporal", nothing), "connection refused", "--temporal is "+nothing+": start a Temporal server")
	try(all("--namespace", "nope"), "nope", "temporal operator namespace create --namespace nope", "--namespace")
	try(all("--temporal", b.server.Addr()), "no Temporal server", "7233")
	try([][]string{{"cleanup", "--temporal", nothing, "--prefix", "pr-", "--dir", t.TempDir()}}, "--temporal is "+nothing)
	try([][]string{{"history", "--run", "nope"}}, `run "nope"`, `namespace "default"`, "runlog snapshot nope")
	if _, err := b.log.GetRun(t.Context(), &runlogv1.GetRunRequest{RunId: "away-1"}); err == nil {
		t.Error("run away-1 is in the log, and no workflow was started")
	}
	for _, line := range [][]string{{"worker", "--allow", "file:///none", "--server", nothing}, {"start", "--server", nothing, "--run", "away-1", plan},
		{"signal", "--server", nothing, "--run", "away-1", "PAUSE"}, {"sweep", "--server", nothing}} {
		out, err := b.impatient(line[0], line[1:]...)
		programtest.WantError(t, strings.Join(line, " "), err, "cannot ", "connection refused", "--server is "+nothing+": start a node", "runlog serve")
		if strings.Contains(out, "runs that go on") {
			t.Errorf("%s: %s", strings.Join(line, " "), out)
		}
	}
	for door, want := range map[string][]string{
		programtest.Door(t):                         {"cannot ask runlog whose credentials these are", "UNAUTHENTICATED", "--token-file"},
		programtest.Door(t, runlogv1.Role_PRODUCER): {"token:ci has the roles [PRODUCER]", "needs PRODUCER and READER", "runlog token create"},
	} {
		_, err := b.impatient("worker", "--allow", "file:///none", "--server", door)
		programtest.WantError(t, "a worker whose token does not suffice", err, want...)
	}
}

// TestStopsWaiting: a worker that gets SIGTERM while it waits for Temporal ends quietly with 0.
func TestStopsWaiting(t *testing.T) {
	b := newBed(t)
	p := programtest.Start(t, programtest.Command(b.args("worker", "--allow", "file:///none", "--temporal", programtest.Closed)...))
	p.Says(t, programtest.Has("cannot reach the server of the engine"))
	if code := p.Stop(t); code != 0 || strings.Contains(p.Said.String(), name+": ") {
		t.Errorf("exit code %d:\n%s", code, p.Said)
	}
}

// TestExitCodes: a fault of the command line, or of a file that it names, exits with 2, as at the
// other programs.
func TestExitCodes(t *testing.T) {
	for line, want := range map[string]int{
		"": 2, "run": 2, "worker now": 2, "worker": 2, "sweep --nonsense": 2, "sweep --token-file /none": 2, "signal PAUSE": 2, "history": 2,
		"start --tenant a --project b --run c /none": 2, "worker --allow file:///none --executors shell": 2, "help": 0, "version": 0, "sweep --help": 0,
	} {
		p := programtest.Start(t, programtest.Command(strings.Fields(line)...))
		if code := p.Wait(t); code != want {
			t.Errorf("%q: exit code %d, want %d:\n%s", line, code, want, p.Said)
		}
	}
}

// TestPlanFaults: start names the file of a plan and its fault, and creates no run.
func TestPlanFaults(t *testing.T) {
	b := newBed(t)
	invalid := filepath.Join(b.dir, "invalid.json")
	if err := os.WriteFile(invalid, []byte(`{"schemaVersion":"v1.2","planId":"p","planVersion":"1","steps":[{"stepId":"a","type":"noop","dependsOn":["z"]}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	missing, fine := filepath.Join(b.dir, "missing.json"), b.plan("fine", 1)
	_, err := b.impatient("start", "--run", "faults", missing)
	programtest.WantError(t, "no file", err, "cannot read the plan", missing, "no such file", "name the file of a plan")
	_, err = b.impatient("start", "--run", "faults", invalid)
	programtest.WantError(t, "a fault", err, "cannot read the plan", invalid, "/steps/0/dependsOn/0", "no such step")
	_, err = b.impatient("start", "--run", "faults", "--heartbeat", "1ms", fine)
	programtest.WantError(t, "a setting", err, "Heartbeat is 1ms", "1s or more")
	_, err = b.impatient("sweep", "--token-file", missing)
	programtest.WantError(t, "no token", err, "--token-file", missing, "name a file")
	empty := filepath.Join(b.dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = b.impatient("sweep", "--token-file", empty)
	programtest.WantError(t, "an empty token", err, "--token-file "+empty+": it is empty")
	if _, err := b.log.GetRun(t.Context(), &runlogv1.GetRunRequest{RunId: "faults"}); err == nil {
		t.Error("run faults is in the log, and nothing can run it")
	}
}

// TestUnsupportedPlan: a plan with a step that the worker cannot execute ends the run. The error
// names the step, and what the worker has.
func TestUnsupportedPlan(t *testing.T) {
	b := newBed(t)
	b.startWorker()
	path := filepath.Join(b.dir, "compute.json")
	if err := os.WriteFile(path, []byte(`{"schemaVersion":"v1.2","planId":"p","planVersion":"1","steps":[{"stepId":"refresh","type":"compute",
		"computeContract":{"executor":"excel_farm","inputs":["r"],"outputs":["m"],"verification":"operator_attest"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	// The worker makes the search attributes known.
	await.Poll(t, "the start of the run", func() bool {
		_, err := b.command("start", "--run", "compute", path)
		return err == nil
	})
	if status := b.ends("compute"); status != runlogv1.RunStatus_FAILED {
		t.Errorf("the run is %v", status)
	}
	const want = `the engine cannot execute the plan: step "refresh" needs "compute"; the engine has executor:command, executor:http, executor:noop, onFailure:WAIT: change the plan, or use another engine`
	for r, err := range b.log.ReadEvents(t.Context(), &runlogv1.ReadEventsRequest{RunId: "compute"}) {
		if err != nil {
			t.Fatal(err)
		}
		if r.GetEventType() != "RunFailed" {
			continue
		}
		var p struct {
			Error struct{ Code, Message string }
		}
		if err := json.Unmarshal(r.GetPayloadJson(), &p); err != nil || p.Error.Code != "PLAN_UNSUPPORTED" || p.Error.Message != want {
			t.Errorf("the run has failed with %s: %v", r.GetPayloadJson(), err)
		}
	}
}

// TestStartOfForeignIDENG1: a run whose id another workflow has can never be started. It fails, and
// does not stay PENDING; the workflow is left alone.
func TestStartOfForeignIDENG1(t *testing.T) {
	b := newBed(t)
	e, err := configured(t, "sweep --temporal "+b.temporal.Address)
	if err == nil {
		err = e.Register(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	taken := sdkclient.StartWorkflowOptions{ID: temporal.DefaultPrefix + "taken", TaskQueue: "tq-other"}
	of, err := b.sdk.ExecuteWorkflow(t.Context(), taken, "other")
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.impatient("start", "--run", "taken", b.plan("fine", 1))
	programtest.WantError(t, "a foreign workflow", err, "has failed, because it can never be started", `the workflow "runlog/taken"`, "another id")
	res, err := b.log.GetSnapshot(t.Context(), &runlogv1.GetSnapshotRequest{RunId: "taken"})
	if err != nil || res.GetSnapshot().GetStatus() != runlogv1.RunStatus_FAILED {
		t.Errorf("the run is %v, %v, want FAILED", res, err)
	}
	d, err := b.sdk.DescribeWorkflowExecution(t.Context(), of.GetID(), of.GetRunID())
	if err != nil || d.GetWorkflowExecutionInfo().GetStatus() != enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
		t.Errorf("the foreign workflow is %v, %v, want it to run", d, err)
	}
}

// impatient runs a command that does not wait long, and ends by itself. Its flags precede those of
// the bed, which they override.
func (b *bed) impatient(verb string, more ...string) (string, error) {
	var out bytes.Buffer
	a, do, err := parse(&out, &out, b.args(verb, more...))
	if err != nil {
		return out.String(), err
	}
	a.patience = 2 * time.Second
	if err := a.dial(); err != nil {
		return out.String(), err
	}
	defer a.close()
	err = a.explain(do(await.Context(b.t), a, a.flags.Args()))
	return out.String(), err
}
