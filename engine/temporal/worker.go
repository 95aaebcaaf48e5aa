package temporal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"runlog/engine"
	runlogv1 "runlog/proto/runlog/v1"
)

// controlPrefix begins the queues of the workflows.
const controlPrefix = "tq-control-"

// keys are the search attributes of workflows.
var keys = []sdk.SearchAttributeKeyKeyword{
	tenantAttribute, projectAttribute, environmentAttribute, planAttribute, tierAttribute, statusAttribute,
}

// attributesOf returns the attributes of the workflow of a run. The tier is a label of the run.
func attributesOf(run *runlogv1.Run) sdk.SearchAttributes {
	list := []sdk.SearchAttributeUpdate{
		tenantAttribute.ValueSet(run.GetTenantId()), projectAttribute.ValueSet(run.GetProjectId()),
		environmentAttribute.ValueSet(run.GetEnvironmentId()), planAttribute.ValueSet(run.GetPlanRef().GetPlanId()),
		statusAttribute.ValueSet(string(engine.RunRunning)),
	}
	if tier := run.GetLabels()[tierAttribute.GetName()]; tier != "" {
		list = append(list, tierAttribute.ValueSet(tier))
	}
	return sdk.NewSearchAttributes(list...)
}

// Register makes the search attributes known to the namespace. Those that it knows stay as they
// are. Without them no run can be started.
func (e *Engine) Register(ctx context.Context) error {
	wanted := map[string]enums.IndexedValueType{}
	known, err := e.o.Temporal.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: e.o.Namespace})
	if err != nil {
		return fmt.Errorf("temporal: cannot list the search attributes of the namespace %q: %w", e.o.Namespace, err)
	}
	for _, key := range keys {
		switch kind, there := known.GetCustomAttributes()[key.GetName()]; {
		case !there:
			wanted[key.GetName()] = key.GetValueType()
		case kind != key.GetValueType():
			return fmt.Errorf("temporal: the search attribute %s of the namespace %q is %v, and %v is expected: remove it", key.GetName(), e.o.Namespace, kind, key.GetValueType())
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	_, err = e.o.Temporal.OperatorService().AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{Namespace: e.o.Namespace, SearchAttributes: wanted})
	if _, exists := errors.AsType[*serviceerror.AlreadyExists](err); err != nil && !exists {
		return fmt.Errorf("temporal: cannot add the search attributes of the namespace %q: %w", e.o.Namespace, err)
	}
	return nil
}

// RegisterWorkflow registers the workflow of runs, with a worker or with what replays histories.
func RegisterWorkflow(r worker.WorkflowRegistry) { register(r, interpret) }

func register(r worker.WorkflowRegistry, interpret func(workflow.Context, Input) (summary, error)) {
	r.RegisterWorkflowWithOptions(interpret, workflow.RegisterOptions{Name: WorkflowType})
}

// stopAll stops workers at the same time: one after the other, each would wait for its steps while
// the others still take new ones.
func stopAll[W interface{ Stop() }](workers []W) {
	var stopping sync.WaitGroup
	for _, w := range workers {
		stopping.Go(w.Stop)
	}
	stopping.Wait()
}

// Run works on the task queues until ctx ends. Then it takes no more steps, and waits for those
// that are executed, at most for Grace. Workflows are worked on where a queue is one for control.
func (e *Engine) Run(ctx context.Context) error {
	queues := slices.Clone(e.o.Queues)
	for _, o := range e.o.Isolation {
		queues = append(queues, o.Queue())
	}
	failed := make(chan error, len(queues))
	var started []worker.Worker
	defer func() { stopAll(started) }()
	for _, queue := range queues {
		steps := !strings.HasPrefix(queue, controlPrefix)
		w := worker.New(e.o.Temporal, queue, worker.Options{
			Identity: e.o.Worker, MaxConcurrentActivityExecutionSize: e.o.Concurrency, WorkerStopTimeout: e.o.Grace,
			StickyScheduleToStartTimeout: e.o.Sticky, MaxHeartbeatThrottleInterval: e.o.Beat, DefaultHeartbeatThrottleInterval: e.o.Beat,
			DisableWorkflowWorker: steps,
			OnFatalError:          func(err error) { failed <- fmt.Errorf("temporal: the worker of %s has failed: %w", queue, err) },
		})
		if !steps {
			register(w, e.interpret)
		}
		for name, f := range e.activities.names() {
			w.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: name})
		}
		if err := w.Start(); err != nil {
			return fmt.Errorf("temporal: cannot start the worker of %s: %w", queue, err)
		}
		started = append(started, w)
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}
