package workload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"runlog/audit/proof"
	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest/history"
	"runlog/server/servertest/workload/bus"
)

// Options shape Clients.
type Options struct {
	// Seed of everything that is drawn.
	Seed uint64
	// Nodes are the names of the nodes, in the order in which Dial counts them.
	Nodes []string
	// Dial makes a client's connection to a node. Clients closes it.
	Dial func(client string, node int) (*grpc.ClientConn, error)
	// Connect makes the product's client of a host, for all nodes. Clients closes it.
	Connect func(client string, opts ...grpc.DialOption) (*client.Client, error)
	// Instant: no time passes while a goroutine runs, as in a bubble of fake time. Calls of an
	// Appender that begin at different times are then queued in the order of these times.
	Instant bool
	// Broken is called for violations that no history shows.
	Broken func(format string, args ...any)
	// Think is the mean time between two calls of a client. Default: 150 ms.
	Think time.Duration
	// Patience is the longest deadline of a call. Default: 4 s.
	Patience time.Duration
	// RunLives is how long a run is appended to. Default: 20 s.
	RunLives time.Duration
	// Before is an earlier history of the same cluster, or nil. Finals and Check include it.
	Before *history.History
	// OldKeys is how many signing keys a restored cluster has from the one that was backed up: they
	// do not endorse its own.
	OldKeys int
	// Sinks: the nodes call OpenSink for the sinks of subscriptions.
	Sinks bool
	// Pad is the most that an event's payload is padded by, in bytes. Default: 200.
	Pad int
}

func (o *Options) ensureDefaults() {
	if o.Think == 0 {
		o.Think = 150 * time.Millisecond
	}
	if o.Patience == 0 {
		o.Patience = 4 * time.Second
	}
	if o.RunLives == 0 {
		o.RunLives = 20 * time.Second
	}
	if o.Pad == 0 {
		o.Pad = 200
	}
}

// Clients are the clients of one cluster.
type Clients struct {
	opts     Options
	began    time.Time
	recorder *history.Recorder
	acked    atomic.Int64 // appends
	changes  atomic.Int64 // of the leader, see Interrupted
	held     atomic.Bool  // the cluster, see Hold
	hired    int
	firstKey string // of the cluster, as the node of the first final reports it
	// kept is the checkpoint of the last proof of these finals; nil: there was none.
	kept *proof.KeptCheckpoint

	mu      sync.Mutex
	sent    map[string][]*runlogv1.EventWrite // by run
	number  int
	guests  int
	windows []asked // that were closed
	// assigned has the attempts of answers (IDM-10)
	assigned map[eventName]uint32

	starts    starts
	decisions decisions
	attested  attested
	bus       atomic.Pointer[bus.Bus] // nil: there are no clients of the bus
}

// New returns Clients that have no client yet.
func New(opts Options) *Clients {
	opts.ensureDefaults()
	c := &Clients{opts: opts, began: time.Now(), sent: map[string][]*runlogv1.EventWrite{}, assigned: map[eventName]uint32{}}
	// The monotonic clock: the machine's wall clock may be set back.
	base := c.began.UnixNano()
	c.recorder = history.NewRecorder(func() int64 { return base + int64(time.Since(c.began)) })
	if opts.Before != nil {
		c.takeOver(opts.Before)
	}
	return c
}

// takeOver reads the runs and the closed windows of an earlier history.
func (c *Clients) takeOver(h *history.History) {
	for i := range h.Ops {
		for _, a := range h.Ops[i].Appends {
			c.sent[a.Run] = nil
		}
		if w := h.Ops[i].Window; w != nil && w.Closed {
			c.windows = append(c.windows, asked{time.Unix(0, w.From), time.Unix(0, w.To)})
		}
	}
}

// Hire starts n more clients, each with a watcher, until ctx ends. The caller must call wait, which
// returns when all have stopped. Clients and their watchers are named client-0, client-1, and so
// on.
func (c *Clients) Hire(ctx context.Context, n int) (wait func(), err error) {
	var all sync.WaitGroup
	for range n {
		host := fmt.Sprintf("client-%d", c.hired)
		w, err := c.newWorker(host, uint64(1000+c.hired))
		if err != nil {
			return nil, err
		}
		if w.library, err = c.newLibrary(host); err != nil {
			return nil, err
		}
		watcher, err := c.newWorker(host, uint64(2000+c.hired))
		if err != nil {
			return nil, err
		}
		watch := watcher.watchRun
		if c.hired%2 == 1 {
			watch = watcher.watchRuns
		}
		pipe := &worker{clients: c, host: host, rng: rand.New(rand.NewPCG(c.opts.Seed, uint64(4000+c.hired))), last: map[string]uint64{}, library: w.library}
		place := c.hired % openRuns
		c.hired++
		all.Go(func() {
			defer w.close()
			piped := start(func() { pipe.pipeline(ctx, place) })
			w.work(ctx)
			piped()
		})
		all.Go(func() { defer watcher.close(); watch(ctx) })
	}
	return all.Wait, nil
}

// Acknowledged returns the number of appends that were acknowledged so far.
func (c *Clients) Acknowledged() int { return int(c.acked.Load()) }

// AwaitAck waits until one more append is acknowledged.
func (c *Clients) AwaitAck(ctx context.Context) error {
	for was := c.acked.Load(); c.acked.Load() == was; pause(ctx, 5*time.Millisecond) {
		if ctx.Err() != nil {
			return fmt.Errorf("workload: await an acknowledged append: %w", ctx.Err())
		}
	}
	return nil
}

// History returns what the clients have seen so far.
func (c *Clients) History() *history.History {
	h := c.recorder.History()
	if before := c.opts.Before; before != nil {
		h.Ops = append(slices.Clone(before.Ops), h.Ops...)
	}
	return h
}

// Check checks the history against the records that the nodes have in the end.
func (c *Clients) Check(finals []*history.Final) *history.Report {
	r := history.Check(c.History(), Fold, finals...)
	r.Counts["forged requests refused"] = c.decisions.refused
	r.Counts["attestations acknowledged"] = len(c.attested.acked)
	return r
}

func (c *Clients) addSent(run string, e *runlogv1.EventWrite) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent[run] = append(c.sent[run], e)
}

// again returns an event that was sent to a run; nil when none was.
func (c *Clients) again(run string, rng *rand.Rand) *runlogv1.EventWrite {
	c.mu.Lock()
	defer c.mu.Unlock()
	if all := c.sent[run]; len(all) > 0 {
		return all[rng.IntN(len(all))]
	}
	return nil
}

// next returns a number that no other call returns.
func (c *Clients) next() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.number++
	return c.number
}

// asked is a closed window, for later queries of the same window.
type asked struct{ from, to time.Time }

func (c *Clients) remember(a asked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.windows = append(c.windows, a)
}

func (c *Clients) askedBefore(rng *rand.Rand) (asked, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.windows) == 0 {
		return asked{}, false
	}
	return c.windows[rng.IntN(len(c.windows))], true
}

// worker is a client that makes one call after another.
type worker struct {
	clients *Clients
	host    string
	conns   []*grpc.ClientConn
	rng     *rand.Rand
	last    map[string]uint64 // the last runSeq that an answer had, by run
	hired   context.Context   // after it ends, the client starts no retry
	library *library          // nil: the worker uses no library

	answering sync.Mutex // guards last: calls may have answers at the same time
}

// newWorker makes a client with its own random stream.
func (c *Clients) newWorker(host string, stream uint64) (*worker, error) {
	w := &worker{clients: c, host: host, rng: rand.New(rand.NewPCG(c.opts.Seed, stream)), last: map[string]uint64{}, hired: context.Background()}
	for i := range c.opts.Nodes {
		conn, err := c.opts.Dial(host, i)
		if err != nil {
			w.close()
			return nil, fmt.Errorf("workload: %w", err)
		}
		w.conns = append(w.conns, conn)
	}
	return w, nil
}

// newGuest makes a client for one task. Each has its own random stream, so that no two make the
// same event.
func (c *Clients) newGuest(host string) (*worker, error) {
	c.mu.Lock()
	c.guests++
	stream := uint64(3000 + c.guests)
	c.mu.Unlock()
	return c.newWorker(host, stream)
}

func (w *worker) close() {
	if w.library != nil {
		_ = w.library.Close() // fails only if it is closed
	}
	for _, conn := range w.conns {
		_ = conn.Close()
	}
}

func (w *worker) events(node int) runlogv1.EventServiceClient {
	return runlogv1.NewEventServiceClient(w.conns[node])
}

func (w *worker) projections(node int) runlogv1.ProjectionServiceClient {
	return runlogv1.NewProjectionServiceClient(w.conns[node])
}

func (w *worker) audits(node int) runlogv1.AuditServiceClient {
	return runlogv1.NewAuditServiceClient(w.conns[node])
}

// outcome returns what a client may conclude from the error of a node. An error without a reason of
// the server leaves the outcome unknown.
func outcome(err error) history.Outcome {
	e := client.ErrorOf(status.Convert(err))
	if e.Reason == "" {
		return history.Outcome{}
	}
	return history.Failed(e.Reason)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
