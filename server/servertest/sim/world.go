package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"runlog/raft"
	"runlog/raft/witness"
	"runlog/server"
	"runlog/server/auth"
	"runlog/server/servertest/history"
	"runlog/server/servertest/workload"
	"runlog/testbed/network"
)

// Options shape a run.
type Options struct {
	// Seed of everything that is drawn.
	Seed uint64
	// Nodes and Clients in it. Default: 3 and 4. Negative: no clients.
	Nodes, Clients int
	// Length of the plan. Default: a minute.
	Length time.Duration
	// Every is the mean time between two faults. Default: a second. Negative: no faults.
	Every time.Duration
	// Kinds of faults, with their weights. Default: all of them.
	Kinds map[Kind]int
	// Scenarios, with their weights. Default: none.
	Scenarios map[Kind]int
	// Gap is the mean time from the end of a scenario to the next. Default: four times Every, at
	// least a second.
	Gap time.Duration
	// Cross checks the history with porcupine too. The history must be small.
	Cross bool
	// Bus adds subscriptions with their receivers, unless Cross is set.
	Bus bool
	// Held makes the cluster from a backup, and holds it for a part of Length. It implies Bus.
	Held bool
	// Keep lists the entries of the plan that happen, by place. Default: all of them.
	Keep []int
	// Log receives the nodes' logs and the faults. Default: discarded.
	Log io.Writer
}

// Shape draws the options of a world from its seed. Of ten worlds one has one node, one has five,
// and one is small, for the cross-check. Three have few kinds of faults. The world of five nodes
// and those of few kinds have scenarios too. All others have three nodes and all kinds of faults.
// One of twenty worlds, of these, is made from a backup and held.
func Shape(seed uint64, length, every time.Duration, clients int) Options {
	o := Options{Seed: seed, Length: length, Every: every, Clients: clients}
	switch seed % 10 {
	case 3:
		o.Nodes = 1
	case 5:
		o.Cross, o.Length, o.Clients = true, length/10, min(clients, 2)
	case 6:
		o.Held = seed%20 == 6
	case 7:
		o.Nodes, o.Scenarios = 5, fewScenarios(seed)
	case 1, 8:
		o.Kinds, o.Scenarios = fewKinds(seed), fewScenarios(seed)
	case 9:
		o.Kinds, o.Scenarios = quiet, map[Kind]int{OlderCopy: 1}
	default:
	}
	return o
}

func (o *Options) ensureDefaults() {
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	if o.Clients == 0 {
		o.Clients = 4
	}
	if o.Length == 0 {
		o.Length = time.Minute
	}
	if o.Every == 0 {
		o.Every = time.Second
	}
	if o.Gap == 0 {
		o.Gap = max(4*o.Every, time.Second)
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	o.Bus = o.Bus || o.Held
}

// world is a cluster, with its disks, clocks, network and clients, in one bubble of fake time.
type world struct {
	opts   Options
	began  time.Time
	net    *network.Network
	nodes  []*node
	plan   []Fault
	log    *slog.Logger
	healed chan struct{}  // closed when the last fault has ended
	over   chan struct{}  // closed when no life may begin any more
	ghosts sync.WaitGroup // lives that have ended and are being closed

	operator  operator
	admin     workload.Bearer
	adminHash auth.TokenHash
	foreign   workload.Bearer // of a client that may see one tenant
	clients   *workload.Clients
	cosigner  *cosigner
	seen      seen

	rotting turn // of one disk at a time
	staging turn // of one scenario at a time
	// of one clock at a time that is wrong by hours
	missetting turn

	moved    atomic.Bool // a stamp was too far ahead; it is reported once
	original atomic.Bool // the cluster is the one that is backed up
	mu       sync.Mutex
	happened map[Kind]int
	broken   []string // violations that show without a history
	hashes   map[string][]history.AppliedHash
	trees    map[string][]history.TreeRoot
}

// ghostPatience is how long the lives that have ended may take to close, in fake time.
const ghostPatience = time.Hour

// turn is a mutex that may be held while fake time passes.
type turn chan struct{}

// turnsFor bounds, in lengths of the plan, how long after the beginning turns are taken. A hundred
// faults, each of which waits for the one before, would take longer than a world may.
const turnsFor = 4

// take waits for a turn. It returns false if that took too long. Otherwise the caller must pass the
// turn.
func (w *world) take(t turn) bool {
	t <- struct{}{}
	if time.Since(w.began) > turnsFor*w.opts.Length {
		t.pass()
		return false
	}
	return true
}

func (t turn) pass() { <-t }

func newWorld(opts Options) *world {
	opts.ensureDefaults()
	w := &world{opts: opts, began: time.Now(), net: network.New(opts.Seed), happened: map[Kind]int{}, healed: make(chan struct{}), over: make(chan struct{}), rotting: make(turn, 1), staging: make(turn, 1), missetting: make(turn, 1)}
	w.log = slog.New(watching{Handler: slog.NewTextHandler(opts.Log, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: w.since}), seen: &w.seen})
	w.seen.counts, w.seen.leaders = map[string]int{}, map[member]bool{}
	rng := rand.New(rand.NewPCG(opts.Seed, 0x776f726c64))
	for i := range opts.Nodes {
		skew := time.Duration(rng.Int64N(int64(2*time.Second))) - time.Second
		w.nodes = append(w.nodes, &node{
			world: w, index: i, host: fmt.Sprintf("node-%d", i), disk: newDisk(), clock: newClock(skew, (rng.Float64()-0.5)*1e-3),
		})
	}
	text, hash := auth.NewToken()
	w.admin, w.adminHash = workload.Bearer(text), hash
	w.operator, w.hashes = operator{w}, map[string][]history.AppliedHash{}
	w.trees = map[string][]history.TreeRoot{}
	w.cosigner = newCosigner(w)
	working := workload.Options{Seed: opts.Seed, Nodes: w.hosts(), Dial: w.dial, Connect: w.connect, Instant: true, Broken: w.fault, Sinks: true}
	if opts.Held {
		working.OldKeys = 1
	}
	w.clients = workload.New(working)
	w.seen.changed, w.seen.parked = w.clients.Interrupted, w.clients.Parked
	w.plan = Plan(opts.Seed, PlanOptions{
		Nodes: opts.Nodes, Clients: opts.Clients, Length: opts.Length, Every: opts.Every, Kinds: opts.Kinds,
		Scenarios: opts.Scenarios, Gap: opts.Gap,
	})
	return w
}

// since replaces the time of a log record by the fake time since the start.
func (w *world) since(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Duration("at", time.Since(w.began))
	}
	return a
}

func (w *world) logger(host string) *slog.Logger { return w.log.With("node", host) }

func (w *world) note(host, text string, args ...any) { w.logger(host).Info(text, args...) }

func (w *world) hosts() []string {
	hosts := make([]string, w.opts.Nodes)
	for i := range hosts {
		hosts[i] = fmt.Sprintf("node-%d", i)
	}
	return hosts
}

// leading returns the node that became the leader last, if it still leads and serves; else nil.
func (w *world) leading() *node {
	host := w.seen.leader()
	i := slices.IndexFunc(w.nodes, func(n *node) bool { return n.host == host && n.serving() != nil })
	if i < 0 {
		return nil
	}
	return w.nodes[i]
}

func (w *world) count(k Kind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.happened[k]++
}

// failed handles a node that stopped itself: its process has ended. Only a fault of its disk, or a
// snapshot that overruled its log, explains that.
func (w *world) failed(l *life, err error) {
	n := l.node
	n.mu.Lock()
	if n.life != l {
		n.mu.Unlock()
		return // its life had ended before
	}
	explained := n.disk.rotten.Load() || n.disk.syncFails.Load() || n.disk.full.Load() || n.disk.hit.sync.Load() > 0 || n.disk.hit.full.Load() > 0
	explained = explained || errors.Is(err, witness.ErrOlderCopy) && n.older.CompareAndSwap(true, false)
	n.mu.Unlock()
	explained = explained || errors.Is(err, raft.ErrOverruled)
	w.note(n.host, "stopped itself", "err", err, "explained", explained)
	again := time.Second
	if !explained {
		w.fault("%s stopped itself: %v", n.host, err)
		again <<= min(n.stops.Add(1), 6) // the next start will most likely fail too
	}
	w.ghosts.Go(func() {
		rng := rand.New(rand.NewPCG(w.opts.Seed, uint64(time.Since(w.began))))
		left := []int{0, killed}[rng.IntN(2)]
		n.powerOff(l, rng, left)
		select {
		case <-time.After(again):
			n.powerOn()
		case <-w.over:
			return
		}
		if explained && left == killed {
			w.powerAfter(n, rng)
		}
	})
}

// fault records a violation.
func (w *world) fault(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.log.Error("violation", "what", text)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = append(w.broken, fmt.Sprintf("at %s: %s", time.Since(w.began), text))
}

// form starts all nodes and waits until all of them serve.
func (w *world) form(ctx context.Context) error {
	if err := w.cosigner.start(); err != nil {
		return err
	}
	if w.opts.Held {
		return w.formHeld(ctx)
	}
	for _, n := range w.nodes {
		n.powerOn()
	}
	return w.ready(ctx)
}

// ready waits until every node serves and is ready.
func (w *world) ready(ctx context.Context) error {
	for _, n := range w.nodes {
		if err := n.ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

// ready waits until the node serves and is ready.
func (n *node) ready(ctx context.Context) error {
	var s *server.Server
	for s = n.serving(); s == nil; s = n.serving() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not serve: %w", n.host, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
	if err := s.WaitReady(ctx); err != nil {
		return fmt.Errorf("%s is not ready: %w", n.host, err)
	}
	return nil
}

// end turns everything off, and returns once nothing is left.
func (w *world) end() {
	close(w.over)
	rng := rand.New(rand.NewPCG(w.opts.Seed, 0))
	for _, n := range w.nodes {
		n.powerOff(nil, rng, 100)
	}
	w.cosigner.stop()
	ended := make(chan struct{})
	go func() {
		w.ghosts.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(ghostPatience):
		// the bubble would never be empty
		panic("sim: cannot close the lives that have ended:\n" + stacksOf("sim.(*life)"))
	}
}

// stacksOf returns the stacks of the goroutines that are in a function, and of those that they have
// started.
func stacksOf(function string) string {
	all := make([]byte, 64<<20)
	stacks := strings.Split(string(all[:runtime.Stack(all, true)]), "\n\n")
	var b strings.Builder
	var begun []string
	for _, stack := range stacks {
		if strings.Contains(stack, function) {
			id, _, _ := strings.Cut(strings.TrimPrefix(stack, "goroutine "), " ")
			begun = append(begun, " in goroutine "+id+"\n")
			b.WriteString(stack + "\n\n")
		}
	}
	for _, stack := range stacks {
		if slices.ContainsFunc(begun, func(by string) bool { return strings.Contains(stack, by) }) {
			b.WriteString(stack + "\n\n")
		}
	}
	return b.String()
}

// wanted reports whether an entry of the plan may happen.
func (w *world) wanted(i int) bool { return w.opts.Keep == nil || slices.Contains(w.opts.Keep, i) }

func (w *world) ended() bool {
	select {
	case <-w.over:
		return true
	default:
		return false
	}
}
