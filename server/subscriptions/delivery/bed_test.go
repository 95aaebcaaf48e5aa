package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	recordv1 "runlog/proto/record/v1"
	"runlog/server/subscriptions/delivery"
	"runlog/server/subscriptions/window"
	"runlog/storage"
	"runlog/storage/machine"
	"runlog/storage/machine/subscription"
	"runlog/storage/storagetest"
	"runlog/storage/tail"
	"runlog/testbed/bubble"
)

// node is a delivery.Node with a log of its own.
type node struct {
	local *storagetest.Local

	mu       sync.Mutex
	rand     *rand.Rand
	index    uint64
	leads    bool
	changed  chan struct{}
	commands int
	largest  int  // bytes of the largest command
	faults   bool // commands fail, or their answers get lost
	lose     bool // the answer to the next command gets lost
	refuse   bool // the next command fails
	cut      bool // all commands fail
	limit    bool // settlements of one subscription are refused at a limit
	// unconfirmed is how many times the node does not find out whether it leads.
	unconfirmed int
	before      func()              // is called once before a command of the dispatcher
	events      map[string][]string // types of the events of runs, by runSeq
	at          map[string][]storage.Position
}

var (
	errNoLeader = errors.New("not the leader")
	errLost     = errors.New("lost")
)

func (n *node) Store() *storage.Store { return n.local.Store }

func (n *node) ReadIndex(context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.unconfirmed > 0 {
		n.unconfirmed--
		return errNoLeader
	}
	return nil
}

func (n *node) Leading() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.leads
}

func (n *node) LeaderChange() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changed
}

func (n *node) WaitLeading(ctx context.Context) error {
	for {
		n.mu.Lock()
		leads, changed := n.leads, n.changed
		n.mu.Unlock()
		if leads {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// set changes what happens next.
func (n *node) set(do func(*node)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	do(n)
}

func (n *node) lead(is bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leads = is
	close(n.changed)
	n.changed = make(chan struct{})
}

// Execute is delivery.Node's: for the commands of the dispatcher.
func (n *node) Execute(ctx context.Context, cmd storage.Command) (storage.Outcome, error) {
	n.mu.Lock()
	pauses := n.rand.IntN(20)
	n.mu.Unlock()
	for range pauses {
		runtime.Gosched()
	}
	n.mu.Lock()
	leads, fate := n.leads, 9
	if n.faults {
		fate = n.rand.IntN(10)
	}
	switch {
	case n.lose:
		n.lose, fate = false, 1
	case n.refuse:
		n.refuse, fate = false, 0
	case n.cut:
		fate = 0
	}
	limit := n.limit
	if limit {
		n.commands++
	}
	before := n.before
	n.before = nil
	n.mu.Unlock()
	if before != nil {
		before()
	}
	switch {
	case !leads:
		return storage.Outcome{}, errNoLeader
	case fate == 0:
		return storage.Outcome{}, errLost
	case limit:
		reply, err := proto.Marshal(&recordv1.SettleReply{Settled: []bool{false}})
		return storage.Outcome{Answers: []storage.Answer{{Reply: reply}}}, err
	}
	o, err := n.apply(cmd)
	if fate == 1 {
		return storage.Outcome{}, errLost
	}
	return o, errors.Join(err, ctx.Err())
}

func (n *node) apply(cmd storage.Command) (storage.Outcome, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := storage.NewProposal(storagetest.Cluster, 0)
	p.Add(cmd)
	n.index++
	n.commands++
	entry := p.Seal(time.Now().UnixNano())
	n.largest = max(n.largest, len(entry))
	outcomes, err := n.local.Store.Apply(n.index, 1, entry)
	if err != nil {
		return storage.Outcome{}, err
	}
	return outcomes[0], outcomes[0].Err
}

// bed is a node, its dispatcher, and subscriptions.
type bed struct {
	t       *testing.T
	node    *node
	memory  *window.Memory
	d       *delivery.Dispatcher
	healthy chan struct{} // closed once all that takes events works
	subs    map[string]*sub
	stop    context.CancelFunc
	began   time.Time
	lossy   bool                 // commands fail
	sink    func() delivery.Sink // opens that of any subscription, if not nil
	skew    atomic.Int64         // of the node's time of day, in nanoseconds
	asked   func()               // is called once for the timeout of acknowledgements

	mu     sync.Mutex
	rand   *rand.Rand
	shocks []time.Time // when the leadership changed
}

// run runs a test in a bubble in which time passes as soon as nothing happens.
func run(t *testing.T, seed uint64, do func(*bed)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		local, err := storagetest.Open(storage.Options{FS: vfs.NewMem(), Machines: machine.All()})
		if err != nil {
			t.Fatal(err)
		}
		b := &bed{
			t: t, memory: &window.Memory{One: 1 << 20, All: 4 << 20}, healthy: make(chan struct{}), subs: map[string]*sub{},
			began: time.Now(),
			rand:  rand.New(rand.NewPCG(seed, 0)),
			node:  &node{local: local, rand: rand.New(rand.NewPCG(seed, 1)), leads: true, changed: make(chan struct{}), events: map[string][]string{}, at: map[string][]storage.Position{}},
		}
		var stopping context.Context
		stopping, b.stop = context.WithCancel(context.Background())
		b.d = delivery.Start(delivery.Options{
			Node: b.node, Cluster: "cluster", Memory: b.memory, Tail: tail.New(tail.Options{Store: local.Store, Bytes: 64 << 10}), OpenSink: b.openSink, AckTimeout: b.ackTimeout,
			Clock:  func() time.Time { return time.Now().Add(time.Duration(b.skew.Load())) },
			Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Stopping: stopping,
		})
		defer b.close()
		synctest.Wait()
		do(b)
	})
}

// close ends the dispatcher. Then nothing is in use.
func (b *bed) close() {
	b.stop()
	for _, s := range b.subs {
		s.consumers.Wait()
	}
	b.d.Close()
	synctest.Wait()
	if used := b.memory.Used(); used != 0 {
		b.t.Errorf("%d bytes in use after the end", used)
	}
	if err := b.node.local.Close(); err != nil {
		b.t.Error(err)
	}
}

const pullTimeout = 2 * time.Second

func (b *bed) ackTimeout(how []byte) time.Duration {
	b.mu.Lock()
	asked := b.asked
	b.asked = nil
	b.mu.Unlock()
	if asked != nil {
		asked()
	}
	if string(how) == "pull" {
		return pullTimeout
	}
	return 0
}

// time is how long the test takes.
func (b *bed) time(at time.Time) time.Duration { return at.Sub(b.began) }

func (b *bed) int(n int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rand.IntN(n)
}

func (b *bed) sleep(most time.Duration) { time.Sleep(time.Duration(b.int(int(most)))) }

func (b *bed) isHealthy() bool {
	select {
	case <-b.healthy:
		return true
	default:
		return false
	}
}

// append stores events of a type.
func (b *bed) append(runID, eventType string, n int) {
	b.t.Helper()
	var list []contract.Event
	first := len(b.node.events[runID])
	for i := range n {
		e := storagetest.Event(runID, first+i)
		e.Type, e.KeyDerived, e.IdempotencyKey = eventType, false, fmt.Sprintf("%s-%d", runID, first+i)
		e.TenantID, _, _ = strings.Cut(runID, "_")
		list = append(list, e)
	}
	b.node.mu.Lock()
	for range n {
		b.node.events[runID] = append(b.node.events[runID], eventType)
		b.node.at[runID] = append(b.node.at[runID], storage.Position(b.node.index+1))
	}
	b.node.mu.Unlock()
	op, err := storage.AppendOperation(&storage.Append{RunID: runID, Events: list})
	b.execute(op, err)
}

// execute applies an operation of a client.
func (b *bed) execute(op storage.Operation, err error) storage.Outcome {
	b.t.Helper()
	var cmd storage.Command
	if err == nil {
		cmd, err = storage.EncodeCommand(op)
	}
	var o storage.Outcome
	if err == nil {
		o, err = b.node.apply(cmd)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return o
}

// change executes an operation on a subscription as the service does.
func (b *bed) change(s *sub, operation func() (storage.Operation, error)) {
	b.t.Helper()
	s.shock()
	if b.int(4) > 0 {
		_ = b.d.Flush(context.Background(), s.name)
	}
	op, err := operation()
	b.execute(op, err)
	if b.int(4) > 0 {
		b.d.Refresh(context.Background())
	}
	s.shock()
}

func (b *bed) applied() storage.Position {
	applied := b.node.Store().Applied()
	return applied.Position()
}

func (b *bed) row(s *sub) *subscription.Subscription {
	b.t.Helper()
	row, err := subscription.Find(b.node.Store(), s.name)
	if err != nil || row == nil {
		b.t.Fatalf("subscription %v: %v, %v", s.name, row, err)
	}
	return row
}

// make makes a subscription from the beginning.
func (b *bed) make(tenant, id, how string, change func(*subscription.Settings)) *sub {
	b.t.Helper()
	s := &sub{b: b, name: subscription.Name{Tenant: tenant, ID: id}, got: map[window.Place]*fate{}}
	s.settings = subscription.Settings{
		Delivery: []byte(how), RetryInitial: 10 * time.Millisecond, RetryMax: 5 * time.Second, MaxAttempts: 4, MaxInFlight: 8,
		OnDeadLetter: subscription.Continue,
	}
	if change != nil {
		change(&s.settings)
	}
	s.flaky = strings.HasPrefix(how, "flaky")
	s.filters = []filter{{types: s.settings.Types}}
	b.mu.Lock()
	b.subs[s.name.String()] = s
	b.mu.Unlock()
	b.execute(subscription.Create(s.name, &s.settings, subscription.Start{}, false))
	return s
}
