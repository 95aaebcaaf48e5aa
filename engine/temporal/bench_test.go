package temporal_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	enums "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"

	"runlog/engine"
	"runlog/engine/executor"
	"runlog/engine/plan"
	"runlog/engine/temporal"
	"runlog/engine/temporal/temporaltest"
	runlogv1 "runlog/proto/runlog/v1"
)

var (
	bench      = flag.Bool("temporal.bench", false, "measure steps, beside a log that stores nothing; RUNLOG is the program of the node")
	benchRuns  = flag.Int("temporal.runs", 40, "runs of each phase, all at a time")
	benchCrowd = flag.Int("temporal.crowd", 200, "runs of the last phase, all at a time")
	benchPairs = flag.Int("temporal.rounds", 5, "rounds, each of which has a phase with runlog and one without")
)

const benchSteps = 20

// bed is a Temporal server with two logs.
type bed struct {
	t        *testing.T
	temporal *temporaltest.Server
	node     creator
	memory   *memoryLog
	pids     [3]int // of this process, the node and the Temporal server
}

// creator is a log that takes runs.
type creator interface {
	engine.Log
	CreateRun(context.Context, *runlogv1.CreateRunRequest) (*runlogv1.CreateRunResponse, error)
}

// Fetch returns a plan of two chains of steps, which do nothing.
func (*bed) Fetch(context.Context, plan.Ref) (*plan.Plan, error) {
	var steps []string
	for i := range benchSteps {
		on := ""
		if i > 1 {
			on = fmt.Sprintf(`,"dependsOn":["s%d"]`, i-2)
		}
		steps = append(steps, fmt.Sprintf(`{"stepId":"s%d","type":"noop"%s}`, i, on))
	}
	p, _, err := plan.Parse([]byte(`{"schemaVersion":"v1.2","planId":"build","planVersion":"3","steps":[`+strings.Join(steps, ",")+`]}`), plan.Options{})
	return p, err
}

// phase is what was measured while some runs were under way at a time.
type phase struct {
	rate            float64          // steps a second, from the first start to the last end
	processor       [3]time.Duration // of the pids, for a step
	calls           float64          // of the log, for a step
	latency, append time.Duration    // of a step, p50
	share           float64          // of the appends in the latency of their step, p50
	timeouts        map[string]int   // of activities, by their types
	took            []time.Duration  // of each run
}

// phase runs so many runs of a log, all or one at a time, each on task queues of this phase alone.
func (b *bed) phase(name string, log creator, runs, atATime int) phase {
	b.t.Helper()
	registry, err := executor.NewRegistry(executor.Options{}, map[string]executor.Executor{"noop": executor.Noop{}})
	if err != nil {
		b.t.Fatal(err)
	}
	sdk := b.temporal.Client(b.t, "default")
	clock := &watch{Log: log, took: map[string]time.Duration{}}
	e, err := temporal.New(temporal.Options{Temporal: sdk, Log: clock, Plans: b, Registry: registry, Worker: "worker", Queues: []string{"tq-control-" + name}, Grace: time.Millisecond})
	if err != nil {
		b.t.Fatal(err)
	}
	if err := e.Register(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	for i := range runs {
		if _, err := log.CreateRun(b.t.Context(), &runlogv1.CreateRunRequest{Run: &runlogv1.Run{RunId: fmt.Sprint(name, "-", i), TenantId: "acme",
			ProjectId: "web", EnvironmentId: name, EngineType: new(temporal.EngineType), PlanRef: &runlogv1.PlanRef{PlanId: "build", PlanVersion: "3"}}}); err != nil {
			b.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(b.t.Context())
	var worker, callers sync.WaitGroup
	worker.Go(func() {
		if err := e.Run(ctx); err != nil {
			b.t.Error(err)
		}
	})
	result := phase{timeouts: map[string]int{}, took: make([]time.Duration, runs)}
	free := make(chan struct{}, atATime)
	began, before := time.Now(), b.processor()
	for i := range runs {
		free <- struct{}{}
		callers.Go(func() {
			start, run := time.Now(), fmt.Sprint(name, "-", i)
			if _, err := e.StartRun(ctx, plan.Ref{}, engine.RunContext{RunID: run}); err != nil {
				b.t.Error(err)
			} else if err := sdk.GetWorkflow(ctx, workflowOf(run), "").Get(ctx, nil); err != nil {
				b.t.Errorf("run %s: %v", run, err)
			}
			result.took[i] = time.Since(start)
			<-free
		})
	}
	callers.Wait()
	result.rate = float64(runs*benchSteps) / time.Since(began).Seconds()
	for i, after := range b.processor() {
		result.processor[i] = (after - before[i]) / time.Duration(runs*benchSteps)
	}
	result.calls = float64(clock.calls.Load()) / float64(runs*benchSteps)
	cancel()
	worker.Wait()
	b.look(name, runs, clock, &result)
	return result
}

// processor returns what the processes have used of the processor.
func (b *bed) processor() (list [3]time.Duration) {
	b.t.Helper()
	for i, pid := range b.pids {
		list[i] = processor(b.t, pid)
	}
	return list
}

func sum(list [3]time.Duration) time.Duration { return list[0] + list[1] + list[2] }

// look reads the histories of a phase.
func (b *bed) look(name string, runs int, clock *watch, result *phase) {
	b.t.Helper()
	c := b.temporal.Client(b.t, "default")
	var latencies, appends []time.Duration
	var shares []float64
	for i := range runs {
		run := fmt.Sprint(name, "-", i)
		steps := 0
		history := c.GetWorkflowHistory(b.t.Context(), workflowOf(run), "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		scheduled := map[int64]*historypb.HistoryEvent{}
		for history.HasNext() {
			e, err := history.Next()
			if err != nil {
				b.t.Fatal(err)
			}
			switch e.GetEventType() {
			case enums.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
				scheduled[e.GetEventId()] = e
			case enums.EVENT_TYPE_ACTIVITY_TASK_STARTED:
				a := e.GetActivityTaskStartedEventAttributes()
				if a.GetLastFailure().GetTimeoutFailureInfo() != nil {
					result.timeouts[scheduled[a.GetScheduledEventId()].GetActivityTaskScheduledEventAttributes().GetActivityType().GetName()]++
				}
			case enums.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
				a := e.GetActivityTaskTimedOutEventAttributes()
				result.timeouts[scheduled[a.GetScheduledEventId()].GetActivityTaskScheduledEventAttributes().GetActivityType().GetName()]++
			case enums.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
				of := scheduled[e.GetActivityTaskCompletedEventAttributes().GetScheduledEventId()]
				id, _, _ := strings.Cut(of.GetActivityTaskScheduledEventAttributes().GetActivityId(), "/")
				if took, ok := clock.took[run+"/"+id]; ok {
					steps++
					latency := e.GetEventTime().AsTime().Sub(of.GetEventTime().AsTime())
					latencies, appends, shares = append(latencies, latency), append(appends, took), append(shares, float64(took)/float64(latency))
				}
			}
		}
		if steps != benchSteps {
			b.t.Errorf("run %s has executed %d steps", run, steps)
		}
	}
	result.latency, result.append, result.share = quantile(latencies, 0.5), quantile(appends, 0.5), quantile(shares, 0.5)
}

// TestBenchENG3 measures the interpreter with runlog beside the same one with a log that stores
// nothing. Rounds have both in turn, in alternating order.
func TestBenchENG3(t *testing.T) {
	if !*bench {
		t.Skip("it measures: make bench-temporal")
	}
	node, pid := startNode(t)
	b := &bed{t: t, temporal: temporaltest.StartInMemory(t), node: node, memory: newMemoryLog()}
	b.pids = [3]int{os.Getpid(), pid, b.temporal.PID()}
	b.phase("warm-up", b.node, 5, 5)
	var ratios, costs []float64
	var with, without []phase
	for i := range *benchPairs {
		for j := range 2 {
			name := fmt.Sprintf("bench-%d-%d", i, j)
			if (i+j)%2 == 0 {
				with = append(with, b.phase(name, b.node, *benchRuns, *benchRuns))
			} else {
				without = append(without, b.phase(name, b.memory, *benchRuns, *benchRuns))
			}
		}
		ratios = append(ratios, with[i].rate/without[i].rate)
		costs = append(costs, float64(sum(without[i].processor))/float64(sum(with[i].processor)))
		t.Logf("round %d: processor for a step (worker, node, Temporal) %v with, %v without; %.2f calls of the log", i, with[i].processor, without[i].processor, with[i].calls)
		t.Logf("round %d: %.0f steps/s with runlog, %.0f without: %.3f; latency of a step %s, appends %s, %.3f of it", i, with[i].rate, without[i].rate, ratios[i],
			millis(with[i].latency), millis(with[i].append), with[i].share)
	}
	t.Logf("STEPS/S with runlog ÷ without: %.3f, of %d rounds of %d runs at a time", quantile(ratios, 0.5), *benchPairs, *benchRuns)
	t.Logf("PROCESSOR for a step without runlog ÷ with: %.3f", quantile(costs, 0.5))
	var shares []float64
	for i := range *benchPairs {
		p := b.phase(fmt.Sprint("alone-", i), b.node, 10, 1)
		shares = append(shares, p.share)
		t.Logf("one run at a time: latency of a step %s, appends %s, %.3f of it", millis(p.latency), millis(p.append), p.share)
	}
	t.Logf("SHARE of the appends, one run at a time: %.3f at p50", quantile(shares, 0.5))
	crowd := b.phase("crowd", b.node, *benchCrowd, *benchCrowd)
	t.Logf("CROWD of %d runs: %.0f steps/s, the slowest run took %v, activity timeouts %v", *benchCrowd, crowd.rate, quantile(crowd.took, 1), crowd.timeouts)
	if len(crowd.timeouts) > 0 {
		t.Errorf("activities have timed out: %v", crowd.timeouts)
	}
}
