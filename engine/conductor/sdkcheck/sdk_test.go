package sdkcheck

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/antihax/optional"
	"github.com/conductor-sdk/conductor-go/sdk/client"
	"github.com/conductor-sdk/conductor-go/sdk/model"
	"github.com/conductor-sdk/conductor-go/sdk/settings"
	"github.com/conductor-sdk/conductor-go/sdk/worker"
	"github.com/conductor-sdk/conductor-go/sdk/workflow/executor"

	"runlog/engine/conductor/conductortest"
	"runlog/testbed/await"
)

// world is a fake with the SDK's executor, and a worker of the SDK that does what a test says.
type world struct {
	t    *testing.T
	fake *conductortest.Server
	api  *client.APIClient
	ex   *executor.WorkflowExecutor

	mu   sync.Mutex
	do   func(task *model.Task) (any, error)
	seen []string // reference names, in the order of the executions
}

// newWorld has a graph that is not series-parallel: c needs a, and d needs a and b. Each branch of
// one fork begins with a JOIN on other branches. The SDK's workers cannot be stopped: each world
// has a task type of its own, and its worker ends with the process.
func newWorld(t *testing.T, taskType string, do func(task *model.Task) (any, error)) *world {
	w := &world{t: t, fake: conductortest.Start(t), do: do}
	w.api = client.NewAPIClient(nil, settings.NewHttpSettings(w.fake.URL()+"/api"))
	w.ex = executor.NewWorkflowExecutor(w.api)
	metadata := client.NewMetadataClient(w.api)
	_, err := metadata.RegisterTaskDef(t.Context(), []model.TaskDef{{
		Name: taskType, OwnerEmail: "team@example.com", RetryCount: 3, RetryLogic: "FIXED", RetryDelaySeconds: 1,
		ResponseTimeoutSeconds: 60, TimeoutPolicy: "RETRY", TimeoutSeconds: 3600}})
	if err != nil {
		t.Fatal(err)
	}
	step := func(name string, on ...string) []model.WorkflowTask {
		branch := []model.WorkflowTask{{Name: taskType, TaskReferenceName: name, Type_: "SIMPLE", InputParameters: map[string]any{"stepId": name}}}
		if len(on) > 0 {
			branch = append([]model.WorkflowTask{{Name: "join", TaskReferenceName: "join-" + name, Type_: "JOIN", JoinOn: on}}, branch...)
		}
		return branch
	}
	err = w.ex.RegisterWorkflow(true, &model.WorkflowDef{Name: "plan", Version: 1, OwnerEmail: "team@example.com", SchemaVersion: 2,
		TimeoutPolicy: "ALERT_ONLY", Tasks: []model.WorkflowTask{
			{Name: "fork", TaskReferenceName: "fork", Type_: "FORK_JOIN", ForkTasks: [][]model.WorkflowTask{
				step("a"), step("b"), step("c", "a"), step("d", "a", "b")}},
			{Name: "join", TaskReferenceName: "join", Type_: "JOIN", JoinOn: []string{"c", "d"}}}})
	if err != nil {
		t.Fatal(err)
	}
	runner := worker.NewTaskRunnerWithApiClient(w.api)
	err = runner.StartWorker(taskType, func(task *model.Task) (any, error) {
		w.mu.Lock()
		w.seen = append(w.seen, task.ReferenceTaskName)
		do := w.do
		w.mu.Unlock()
		return do(task)
	}, 4, 10*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) start(correlation string) string {
	w.t.Helper()
	id, err := w.ex.StartWorkflow(&model.StartWorkflowRequest{Name: "plan", Version: 1, CorrelationId: correlation, Input: map[string]any{}})
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

// until waits for a state of a workflow, as the SDK sees it.
func (w *world) until(id string, what string, holds func(*model.Workflow) bool) *model.Workflow {
	w.t.Helper()
	var last *model.Workflow
	held := false
	defer func() {
		if held || last == nil {
			return
		}
		w.t.Logf("workflow is not %s but %s", what, last.Status) // The wait has ended the test.
		for _, t := range last.Tasks {
			w.t.Logf("%s %d is %s", t.ReferenceTaskName, t.RetryCount, t.Status)
		}
	}()
	await.Poll(w.t, "a workflow that is "+what, func() bool {
		var err error
		if last, err = w.ex.GetWorkflow(id, true); err != nil {
			w.t.Fatal(err)
		}
		if held = holds(last); !held {
			w.fake.AdvanceToDue() // retries have a delay of one second
		}
		return held
	})
	return last
}

func has(status string) func(*model.Workflow) bool {
	return func(w *model.Workflow) bool { return string(w.Status) == status }
}

func task(w *model.Workflow, ref string, retry int) *model.Task {
	for i, t := range w.Tasks {
		if t.ReferenceTaskName == ref && int(t.RetryCount) == retry {
			return &w.Tasks[i]
		}
	}
	return nil
}

func succeed(*model.Task) (any, error) { return map[string]any{"ok": true}, nil }

// TestGraphAndRetry: the SDK registers, starts, works and retries. A retry is a new task.
func TestGraphAndRetry(t *testing.T) {
	w := newWorld(t, "graph", func(task *model.Task) (any, error) {
		if task.ReferenceTaskName == "b" && task.RetryCount == 0 {
			return nil, errors.New("try again")
		}
		return map[string]any{"ok": true}, nil
	})
	found := w.until(w.start("run-1"), "COMPLETED", has("COMPLETED"))
	first, second := task(found, "b", 0), task(found, "b", 1)
	if first == nil || second == nil || string(first.Status) != "FAILED" || !first.Retried || second.RetriedTaskId != first.TaskId || second.TaskId == first.TaskId {
		t.Errorf("got %+v and %+v", first, second)
	}
	for _, pair := range [][2]string{{"a", "c"}, {"a", "d"}, {"b", "d"}} {
		if task(found, pair[0], 0).Seq >= task(found, pair[1], 0).Seq {
			t.Errorf("%s is before %s", pair[1], pair[0])
		}
	}
	for _, closed := range []bool{false, true} {
		list, _, err := (&client.WorkflowResourceApiService{APIClient: w.api}).GetWorkflowsByCorrelationId(t.Context(), "plan", "run-1",
			&client.WorkflowResourceApiGetWorkflowsOpts{IncludeClosed: optional.NewBool(closed)})
		if err != nil || closed != (len(list) == 1) {
			t.Errorf("includeClosed %v: got %d workflows, %v", closed, len(list), err)
		}
		all, _, err := (&client.WorkflowResourceApiService{APIClient: w.api}).GetWorkflows(t.Context(), []string{"run-1", "run-none"}, "plan",
			&client.WorkflowResourceApiGetWorkflowsOpts{IncludeClosed: optional.NewBool(closed)})
		if err != nil || closed != (len(all["run-1"]) == 1) || len(all["run-none"]) > 0 {
			t.Errorf("includeClosed %v: got %v, %v", closed, all, err)
		}
	}
}

// TestTimeout: a worker that is silent loses its task, and its late update is ignored.
func TestTimeout(t *testing.T) {
	silent := make(chan struct{})
	w := newWorld(t, "timeout", func(task *model.Task) (any, error) {
		if task.ReferenceTaskName == "a" && task.RetryCount == 0 {
			<-silent
			return map[string]any{"late": true}, nil
		}
		return map[string]any{"ok": true}, nil
	})
	id := w.start("run-2")
	w.until(id, "waiting for a alone", func(found *model.Workflow) bool {
		return string(task(found, "a", 0).Status) == "IN_PROGRESS" && string(task(found, "b", 0).Status) == "COMPLETED"
	})
	w.fake.Advance(61 * time.Second)
	w.until(id, "COMPLETED", has("COMPLETED"))
	updates := w.fake.Calls(conductortest.OpUpdate)
	close(silent)
	await.Poll(t, "the late update", func() bool { return w.fake.Calls(conductortest.OpUpdate) > updates })
	a := task(w.until(id, "COMPLETED", has("COMPLETED")), "a", 0)
	if string(a.Status) != "TIMED_OUT" || len(a.OutputData) > 0 {
		t.Errorf("the late update counted: %+v", a)
	}
}

// TestPauseAndResume: a pause drains. What was scheduled goes on, and nothing else is scheduled.
func TestPauseAndResume(t *testing.T) {
	free := make(chan struct{})
	w := newWorld(t, "pause", func(*model.Task) (any, error) {
		<-free
		return map[string]any{"ok": true}, nil
	})
	id := w.start("run-3")
	w.until(id, "with a in progress", func(found *model.Workflow) bool { return string(task(found, "a", 0).Status) == "IN_PROGRESS" })
	if err := w.ex.Pause(id); err != nil {
		t.Fatal(err)
	}
	close(free)
	found := w.until(id, "drained", func(found *model.Workflow) bool {
		return string(task(found, "a", 0).Status) == "COMPLETED" && string(task(found, "b", 0).Status) == "COMPLETED"
	})
	if string(found.Status) != "PAUSED" || task(found, "c", 0) != nil {
		t.Errorf("got %+v", found)
	}
	if err := w.ex.Resume(id); err != nil {
		t.Fatal(err)
	}
	if err := w.ex.Resume(id); err == nil {
		t.Error("a resume of a workflow that is not paused succeeds")
	}
	w.until(id, "COMPLETED", has("COMPLETED"))
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.seen) != 4 {
		t.Errorf("a finished task ran again: %v", w.seen)
	}
}

// TestSkipTerminateRetry: a skipped task counts as done, a termination cancels, and an operator's
// retry makes new tasks with retryCount + 1.
func TestSkipTerminateRetry(t *testing.T) {
	hold := make(chan struct{})
	w := newWorld(t, "operate", func(task *model.Task) (any, error) {
		if task.RetryCount == 0 {
			<-hold
		}
		return map[string]any{"ok": true}, nil
	})
	id := w.start("run-4")
	if err := w.ex.SkipTasksFromWorkflow(id, "d", model.SkipTaskRequest{}); err != nil {
		t.Fatal(err)
	}
	if err := w.ex.SkipTasksFromWorkflow(id, "d", model.SkipTaskRequest{}); err == nil {
		t.Error("a task is skipped twice")
	}
	w.until(id, "with two in progress", func(found *model.Workflow) bool {
		return string(task(found, "a", 0).Status) == "IN_PROGRESS" && string(task(found, "b", 0).Status) == "IN_PROGRESS"
	})
	if err := w.ex.Terminate(id, "by hand"); err != nil {
		t.Fatal(err)
	}
	found := w.until(id, "TERMINATED", has("TERMINATED"))
	if found.ReasonForIncompletion != "by hand" || string(task(found, "a", 0).Status) != "CANCELED" {
		t.Errorf("got %+v", found)
	}
	if err := w.ex.Retry(id, false); err != nil {
		t.Fatal(err)
	}
	close(hold)
	found = w.until(id, "COMPLETED", has("COMPLETED"))
	if retried := task(found, "a", 1); retried == nil || retried.RetriedTaskId != task(found, "a", 0).TaskId {
		t.Errorf("got %+v", retried)
	}
	if string(task(found, "d", 0).Status) != "SKIPPED" {
		t.Errorf("got %+v", task(found, "d", 0))
	}
	if err := w.ex.Terminate(id, "too late"); err == nil {
		t.Error("a completed workflow is terminated")
	}
}

// TestRestart: the SDK goes on when the fake is back, and nothing is forgotten.
func TestRestart(t *testing.T) {
	w := newWorld(t, "restart", succeed)
	id := w.start("run-5")
	w.fake.Down()
	w.fake.Up()
	w.until(id, "COMPLETED", has("COMPLETED"))
}

// TestFailure: a task without retries left ends its workflow.
func TestFailure(t *testing.T) {
	w := newWorld(t, "failure", func(task *model.Task) (any, error) {
		if task.ReferenceTaskName == "b" {
			return nil, errors.New("broken")
		}
		return map[string]any{"ok": true}, nil
	})
	found := w.until(w.start("run-6"), "FAILED", has("FAILED"))
	if task(found, "b", 3) == nil || task(found, "b", 4) != nil || task(found, "d", 0) != nil {
		t.Errorf("got %d tasks", len(found.Tasks))
	}
}
