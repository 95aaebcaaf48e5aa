package runner_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/client"
	"runlog/client/clienttest"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// TestKillsATT5 kills runners and nodes at any moment of runs with a compute step: no step run is
// there twice, no step that has succeeded is executed again, and every run ends.
// TEST_RUNLOG_RUNNER_ROUNDS is the number of runs.
func TestKillsATT5(t *testing.T) {
	t.Parallel()
	bubble.Test(t, testKillsATT5)
}

func testKillsATT5(t *testing.T) {
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	if text := os.Getenv("TEST_RUNLOG_RUNNER_ROUNDS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		rounds = n
	}
	b := newBed(t, clienttest.Nodes(3))
	b.ttl = 2 * time.Second
	c := b.neverAgain(t)
	done := make(chan struct{})
	var nodes sync.WaitGroup
	nodes.Go(func() {
		rng := rand.New(rand.NewPCG(uint64(rounds), 2))
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Second + time.Duration(rng.Int64N(int64(time.Second)))):
			}
			if rng.IntN(2) == 0 {
				b.srv.StepDown()
			} else {
				b.srv.Restart(rng.IntN(3))
			}
		}
	})
	var all sync.WaitGroup
	turns := make(chan struct{}, 8)
	kills := make([]int, rounds)
	for i := range rounds {
		all.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			kills[i] = b.round(t, c, i)
		})
	}
	all.Wait()
	close(done)
	nodes.Wait()
	sum := 0
	for _, n := range kills {
		sum += n
	}
	t.Logf("%d runs, %d kills of runners", rounds, sum)
	if sum < rounds {
		t.Errorf("%d kills in %d rounds prove little", sum, rounds)
	}
}

// neverAgain fails the test if a step that has succeeded is executed again. It returns a client.
func (b *bed) neverAgain(t *testing.T) *client.Client {
	c := b.srv.Client(client.Options{})
	b.check = func(runID, step string) {
		for e, err := range c.ReadEvents(t.Context(), &runlogv1.ReadEventsRequest{RunId: runID, Consistency: runlogv1.Consistency_LINEARIZABLE}) {
			if err != nil {
				return // The node was killed: the runner hears of it too.
			}
			if e.GetEventType() == "StepCompleted" && e.GetStepId() == step {
				t.Errorf("ATT-5: step %s of run %s has succeeded, and is executed again", step, runID)
			}
		}
	}
	return c
}

// round brings one run to its end, over some kills of the runner, and returns their number. The
// runner after them lives.
func (b *bed) round(t *testing.T, c *client.Client, i int) (kills int) {
	rng := rand.New(rand.NewPCG(uint64(i), 3))
	most := 3 + rng.IntN(4)
	var p *process
	lives := false
	b.through(t, c, i, func() *process {
		if lives {
			return p
		}
		if p != nil {
			p.kill()
		}
		p = b.start(t)
		if lives = kills == most; !lives {
			kills++
			time.AfterFunc(time.Duration(rng.IntN(60))*time.Millisecond, p.kill)
		}
		return p
	})
	return kills
}

// through brings one run to its end with one runner after the other, and kills the last one.
func (b *bed) through(t *testing.T, c *client.Client, i int, next func() *process) {
	steps := fmt.Sprintf(`{"step_key":"A","input":{"round":%d}},`, i) + strings.Join(strings.Split(acceptance, ",")[1:], ",")
	manifest, runID := "", ""
	for deadline := time.Now().Add(bubble.Limit); ; {
		if time.Now().After(deadline) {
			t.Errorf("run %s of round %d does not end: %q", runID, i, b.types(t, runID))
			return
		}
		p := next()
		manifest, runID = b.drive(c, p, manifest, runID, steps)
		status := ""
		if runID != "" {
			if _, answer, err := p.try("GET", "/api/runs/"+runID, ""); err == nil {
				status, _ = answer["status"].(string)
			}
		}
		if status == "success" {
			p.kill()
			break
		}
	}
	want := []string{
		"RunQueued", "RunStarted", "StepStarted A", "StepCompleted A", "StepWaitingForAttestation B", "StepAttested B",
		"RunResumed", "StepStarted C", "StepCompleted C", "RunCompleted",
	}
	got := slices.DeleteFunc(b.types(t, runID), func(s string) bool { return s == "SignalAccepted" || s == "SignalRejected" })
	if !slices.Equal(got, want) {
		t.Errorf("run %s: %q, want %q", runID, got, want)
	}
}

// boundaries are the calls that change what the log has.
var boundaries = []string{"RequestRun", "AppendEvents", "ReleaseLease", "SendSignal", "RequeueRun"}

// dies returns options of a client that calls a function at the nth boundary: before a call, or
// behind it. If the function says so, the calls fail from then on.
func dies(n int64, at func() (dead bool)) (opts client.Options, reached *atomic.Int64) {
	reached = &atomic.Int64{}
	var dead atomic.Bool
	boundary := func() error {
		if reached.Add(1)-1 == n && at() {
			dead.Store(true)
		}
		if dead.Load() {
			return status.Error(codes.Canceled, "the runner was killed")
		}
		return nil
	}
	return client.Options{MinBackoff: 5 * time.Millisecond, DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, name string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if !slices.Contains(boundaries, name[strings.LastIndex(name, "/")+1:]) {
				return invoke(ctx, name, req, reply, cc, opts...)
			}
			if err := boundary(); err != nil {
				return err
			}
			err := invoke(ctx, name, req, reply, cc, opts...)
			if killed := boundary(); killed != nil {
				return killed
			}
			return err
		},
	)}}, reached
}

// killAt brings a run to its end with a runner that is killed at the nth boundary, and then with
// another one. It reports whether there is such a boundary.
func (b *bed) killAt(t *testing.T, c *client.Client, n int64) bool {
	killed := make(chan struct{})
	opts, reached := dies(n, func() bool { close(killed); return true })
	start := func(opts client.Options) *process {
		o := b.options(t, b.srv.Client(opts))
		o.Queue = fmt.Sprint("queue-", n)
		return b.run(t, o)
	}
	first := start(opts)
	go func() {
		select {
		case <-killed:
			first.kill()
		case <-t.Context().Done():
		}
	}()
	var second *process
	b.through(t, c, int(n), func() *process {
		select {
		case <-killed:
			if second == nil {
				second = start(client.Options{MinBackoff: 5 * time.Millisecond})
			}
			return second
		default:
			return first
		}
	})
	return reached.Load() > n
}

// TestEachBoundaryATT5 kills the runner, or restarts the node, before and behind each call of a run
// that changes the log, in turn. Another runner goes on. TestKillsATT5 kills at any time.
func TestEachBoundaryATT5(t *testing.T) {
	t.Parallel()
	step := int64(1)
	if testing.Short() {
		step = 11
	}
	t.Run("runner", func(t *testing.T) {
		t.Parallel()
		bubble.Test(t, func(t *testing.T) { testEachBoundaryOfRunner(t, step) })
	})
	t.Run("node", func(t *testing.T) {
		t.Parallel()
		bubble.Test(t, func(t *testing.T) { testEachBoundaryOfNode(t, step) })
	})
}

func testEachBoundaryOfRunner(t *testing.T, step int64) {
	b := newBed(t)
	b.ttl = 2 * time.Second
	c := b.neverAgain(t)
	const atOnce = 6
	var over atomic.Bool
	for n := int64(0); !over.Load(); n += atOnce * step {
		var all sync.WaitGroup
		for i := range int64(atOnce) {
			all.Go(func() {
				if !b.killAt(t, c, n+i*step) {
					over.Store(true)
				}
			})
		}
		all.Wait()
	}
}

func testEachBoundaryOfNode(t *testing.T, step int64) {
	b := newBed(t)
	c := b.neverAgain(t)
	for n := int64(0); ; n += step {
		opts, reached := dies(n, func() bool { b.srv.Restart(); return false })
		p := b.startWith(t, opts)
		b.through(t, c, int(n), func() *process { return p })
		if reached.Load() <= n {
			break
		}
	}
}

// drive does what operators do, as far as the process lives: it makes the run, attests and resumes.
func (b *bed) drive(c *client.Client, p *process, manifest, runID, steps string) (string, string) {
	if manifest == "" {
		if _, answer, err := p.try("POST", "/api/manifests", `{"name":"m","steps":[`+steps+`]}`); err == nil {
			manifest, _ = answer["id"].(string)
		}
		if manifest == "" {
			return "", ""
		}
	}
	if runID == "" { // An earlier call may have made the run.
		for run, err := range c.ListRuns(p.t.Context(), &runlogv1.ListRunsRequest{PlanId: manifest}) {
			if err == nil {
				runID = run.GetRunId()
			}
		}
	}
	if runID == "" {
		if _, answer, err := p.try("POST", "/api/runs", `{"manifest_id":"`+manifest+`","initiated_by":"jed"}`); err == nil {
			runID, _ = answer["id"].(string)
		}
		return manifest, runID
	}
	_, run, err := p.try("GET", "/api/runs/"+runID, "")
	if err != nil || run["status"] != "waiting" {
		time.Sleep(50 * time.Millisecond)
		return manifest, runID
	}
	for _, x := range run["steps"].([]any) {
		if s := x.(map[string]any); s["status"] == "WAITING_FOR_ATTESTATION" {
			_, _, _ = p.try("POST", "/api/runs/"+runID+"/steps/"+s["step_run_id"].(string)+"/attest", attestB)
		}
	}
	_, _, _ = p.try("POST", "/api/runs/"+runID+"/resume", `{"initiated_by":"jed"}`)
	return manifest, runID
}
