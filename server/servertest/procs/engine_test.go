//go:build unix

package procs

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"runlog/client"
	"runlog/client/events"
	"runlog/client/outbox"
	"runlog/client/writer"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/await"
)

// The test binary is an engine if asEngine has the address of a node. engineBox has the path of its
// outbox, engineLife the number of its life, and with engineLast it only empties the outbox.
const (
	asEngine   = "TEST_PROCS_ENGINE"
	engineBox  = "TEST_PROCS_ENGINE_BOX"
	engineLife = "TEST_PROCS_ENGINE_LIFE"
	engineLast = "TEST_PROCS_ENGINE_LAST"

	engineRuns   = 4
	engineBudget = 500 * time.Millisecond
	engineEmpty  = "the outbox is empty"
)

// engine writes the steps of its runs until it is killed. After each write that has returned
// without an error it prints whether the event is stored or parked.
func engine(server string) error {
	box, err := outbox.Open(os.Getenv(engineBox), outbox.Options{})
	if err != nil {
		return err
	}
	all, err := client.Dial(server, client.Options{MinBackoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond})
	if err != nil {
		return err
	}
	appender, err := all.NewAppender(client.AppenderOptions{})
	if err != nil {
		return err
	}
	sent := make(sentHandler, 1)
	w, err := writer.New(appender, writer.Options{Outbox: box, Budget: engineBudget, Logger: slog.New(sent)})
	if err != nil {
		return err
	}
	if os.Getenv(engineLast) != "" {
		if box.Stats().Pending > 0 {
			<-sent
		}
		w.Close()
		if err := box.Close(); err != nil {
			return err
		}
		if left := box.Stats().Pending; left > 0 {
			return fmt.Errorf("%d records are left", left)
		}
		fmt.Println(engineEmpty)
		return nil
	}
	for i := range engineRuns {
		go engineRun(w, fmt.Sprint("engine-", i), os.Getenv(engineLife))
	}
	select {}
}

// sentHandler is a handler of the writer's log. It receives when the writer says that its outbox is
// sent.
type sentHandler chan struct{}

func (sentHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h sentHandler) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (h sentHandler) WithGroup(string) slog.Handler          { return h }

func (h sentHandler) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "the outbox is sent" {
		select {
		case h <- struct{}{}:
		default:
		}
	}
	return nil
}

// engineRun writes one step of a run after another.
func engineRun(w *writer.Writer, id, life string) {
	run := events.Run{ID: id, Tenant: "acme", Project: "web", Environment: "prod", Plan: "build", PlanVersion: "1"}
	for n := 0; ; n++ {
		step := fmt.Sprint("step-", life, "-", n)
		for _, make := range []func(string, events.Attempt, any) (*runlogv1.EventWrite, error){run.StepStarted, run.StepCompleted} {
			e, err := make(step, events.Attempt{Logical: 1, Engine: 1}, nil)
			if err != nil {
				fmt.Println("broken", err)
				return
			}
			res, err := w.Write(context.Background(), e)
			switch {
			case err != nil: // the engine fails the step
				fmt.Println("failed", id, e.GetIdempotencyKey(), "0 .")
			case res.Parked:
				fmt.Println("parked", id, e.GetIdempotencyKey(), "0 .")
			default:
				fmt.Println("stored", id, e.GetIdempotencyKey(), res.Events[0].GetRunSeq(), ".")
			}
		}
	}
}

// report is what an engine has reported of an event.
type report struct {
	key string
	seq uint64 // 0: parked
}

// reports collects what the lives of an engine have reported, in their order.
type reports struct {
	t    *testing.T
	runs map[string][]report

	mu      sync.Mutex
	sum     map[string]int // by outcome
	changed chan struct{}  // closed at the next report

	ended chan struct{} // closed when the last life has ended and everything is read
	empty bool
}

// count returns how many events had an outcome, and a channel that is closed at the next report.
func (r *reports) count(outcome string) (n int, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sum[outcome], r.changed
}

// more waits until n more events have had an outcome than had it before, or the life has ended.
func (r *reports) more(ctx context.Context, outcome string, before, n int) {
	for {
		now, changed := r.count(outcome)
		if now >= before+n {
			return
		}
		select {
		case <-changed:
		case <-r.ended:
			return
		case <-ctx.Done():
			r.t.Errorf("no more events are %s: %v", outcome, context.Cause(ctx))
			return
		}
	}
}

// start starts a life of the engine.
func (r *reports) start(server, box, life string, env ...string) *exec.Cmd {
	r.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(env, asEngine+"="+server, engineBox+"="+box, engineLife+"="+life)...)
	cmd.SysProcAttr, cmd.Stderr = attributes(), os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = cmd.Process.Kill() })
	ended := make(chan struct{})
	r.ended = ended
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			r.read(lines.Text())
		}
		_ = cmd.Wait()
	}()
	return cmd
}

// read reads a line. The last one of a life may be cut.
func (r *reports) read(line string) {
	f := strings.Fields(line)
	switch {
	case line == engineEmpty:
		r.empty = true
	case len(f) > 0 && f[0] == "broken":
		r.t.Error(line)
	case len(f) == 5 && f[4] == ".":
		seq, _ := strconv.ParseUint(f[3], 10, 64)
		r.mu.Lock()
		r.sum[f[0]]++
		close(r.changed)
		r.changed = make(chan struct{})
		r.mu.Unlock()
		if f[0] != "failed" {
			r.runs[f[1]] = append(r.runs[f[1]], report{f[2], seq})
		}
	}
}

// await waits until the life has ended.
func (r *reports) await() {
	r.t.Helper()
	await.Receive(r.t, "the end of the engine", r.ended)
}

// check requires that a run has each reported event once, in the order of the reports.
func (r *reports) check(run string, log []*runlogv1.EventRecord) {
	r.t.Helper()
	at := map[string]uint64{}
	for _, e := range log {
		if other := at[e.GetIdempotencyKey()]; other > 0 {
			r.t.Errorf("%s of %s is stored as runSeq %d and %d", e.GetIdempotencyKey(), run, other, e.GetRunSeq())
		}
		at[e.GetIdempotencyKey()] = e.GetRunSeq()
	}
	last := uint64(0)
	for i, told := range r.runs[run] {
		seq := at[told.key]
		switch {
		case seq == 0:
			r.t.Errorf("%s: report %d, of %s (runSeq %d), is not in the log", run, i, told.key, told.seq)
		case told.seq != 0 && told.seq != seq:
			r.t.Errorf("%s: report %d, of %s, has runSeq %d; in the log it has %d", run, i, told.key, told.seq, seq)
		case seq <= last:
			r.t.Errorf("%s: report %d, of %s, has runSeq %d, behind %d", run, i, told.key, seq, last)
		}
		last = max(last, seq)
	}
}

// TestEngineKilled proves APP-10, and the write policy of engines: an engine that uses the
// product's client is killed and paused at random moments while it writes, and so is its node. A
// new engine continues with the outbox. In the end, every event that was reported as stored or
// parked is in the log once, in the order of its run.
func TestEngineKilled(t *testing.T) {
	t.Parallel()
	c := newCluster(t, Options{Nodes: 1, Seed: *seedFlag})
	node, rng := c.Nodes()[0], rand.New(rand.NewPCG(*seedFlag, 7))
	box := filepath.Join(t.TempDir(), "outbox")
	r := &reports{t: t, runs: map[string][]report{}, sum: map[string]int{}, changed: make(chan struct{})}
	const lives = 9
	some := func(most int) { Pass(time.Duration(rng.IntN(most)) * time.Millisecond) }
	for life := range lives {
		before, _ := r.count("stored")
		cmd := r.start(node.grpc, box, strconv.Itoa(life))
		r.more(c.ctx, "stored", before, 8)
		// The node is away until the engine parks events.
		parked, _ := r.count("parked")
		var faults sync.WaitGroup
		fault := func(begin, end func()) {
			faults.Go(func() {
				begin()
				r.more(c.ctx, "parked", parked, 1)
				end()
			})
			r.more(c.ctx, "parked", parked, 1)
		}
		switch life % 3 {
		case 0:
			fault(node.Kill, node.Start)
		case 1:
			fault(node.Pause, node.Resume)
		}
		some(600)
		if life%2 == 1 {
			_ = cmd.Process.Signal(syscall.SIGSTOP)
			some(int(2 * engineBudget / time.Millisecond))
			_ = cmd.Process.Signal(syscall.SIGCONT)
			some(200)
		}
		_ = cmd.Process.Kill()
		faults.Wait()
		r.await()
	}
	r.start(node.grpc, box, strconv.Itoa(lives), engineLast+"=1")
	r.await()
	if !r.empty {
		t.Error("the last engine did not empty the outbox")
	}
	for run := range r.runs {
		r.check(run, c.log(run))
	}
	if r.sum["stored"] < 50 || r.sum["parked"] < 4 {
		t.Errorf("%v: the test proved little", r.sum)
	}
	t.Logf("%d lives of the engine: %v", lives, r.sum)
}

// log returns the events of a run.
func (c *Cluster) log(run string) (all []*runlogv1.EventRecord) {
	c.t.Helper()
	conn, err := c.dial("reader", 0)
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close()
	if all, err = c.events(conn, run); err != nil {
		c.t.Fatal(err)
	}
	return all
}

// events returns the events of a run, as a node lists them.
func (c *Cluster) events(conn *grpc.ClientConn, run string) (all []*runlogv1.EventRecord, err error) {
	for req := (&runlogv1.ListEventsRequest{RunId: run}); ; {
		resp, err := runlogv1.NewEventServiceClient(conn).ListEvents(c.ctx, req)
		if err != nil {
			return nil, err
		}
		all = append(all, resp.GetEvents()...)
		if req.AfterSeq = resp.GetNextAfterSeq(); req.AfterSeq == 0 {
			return all, nil
		}
	}
}
