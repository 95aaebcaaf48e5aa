package batch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"runlog/storage"
)

var (
	// ErrOverloaded means that the queue is full. The command was not stored (APP-9).
	ErrOverloaded = errors.New("batch: too much is queued")
	// ErrClosed means that the batcher takes nothing more. The command was not stored.
	ErrClosed = errors.New("batch: closed")
	// ErrAbandoned means that the caller's context ended first. The command may be stored yet (APP-10).
	ErrAbandoned = errors.New("batch: gave up waiting")
)

// Options of a batcher.
type Options struct {
	// Propose hands a log entry to the group and returns a function that waits for its outcomes: one for
	// each command, in order. Required.
	Propose func(entry []byte) (wait func() ([]storage.Outcome, error), err error)
	// Cluster goes into every proposal. Required.
	Cluster storage.ClusterID
	// Clock is the leader's, for persistedAt. Default: time.Now.
	Clock func() time.Time
	// ProposalBytes closes a proposal. A command that is larger goes alone. Default: 1 MiB (D1).
	ProposalBytes int
	// Outstanding proposals at most. Default: 2; more gained nothing (D1).
	Outstanding int
	// QueueBytes bounds what is admitted and not yet answered. Default: 64 MiB.
	QueueBytes int64
	// Registerer of metrics. Default: a registry that nobody reads.
	Registerer prometheus.Registerer
}

// EnsureDefaults fills in what is left out.
func (o *Options) EnsureDefaults() {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.ProposalBytes == 0 {
		o.ProposalBytes = 1 << 20
	}
	if o.Outstanding == 0 {
		o.Outstanding = 2
	}
	if o.QueueBytes == 0 {
		o.QueueBytes = 64 << 20
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
}

// Batcher folds commands into proposals.
type Batcher struct {
	opts    Options
	metrics *metrics

	mu struct {
		sync.Mutex
		queue  []*call
		bytes  int64 // admitted and not yet answered; invariant: ≤ QueueBytes unless one command is larger
		closed bool
	}
	wake     chan struct{} // has room for one: the queue is not empty, or closed
	slots    chan struct{} // one for each proposal that may be under way
	inflight chan proposal
	done     sync.WaitGroup
}

type call struct {
	cmd    storage.Command
	answer chan answer // has room for the one answer, so that an abandoned call blocks nobody
}

type answer struct {
	outcome storage.Outcome
	err     error
}

type proposal struct {
	calls []*call
	bytes int64
	wait  func() ([]storage.Outcome, error)
	begun time.Time
}

// New starts a batcher. Close ends it.
func New(opts Options) *Batcher {
	opts.EnsureDefaults()
	b := &Batcher{
		opts:     opts,
		wake:     make(chan struct{}, 1),
		slots:    make(chan struct{}, opts.Outstanding),
		inflight: make(chan proposal, opts.Outstanding),
	}
	b.metrics = newMetrics(opts.Registerer, b)
	b.done.Go(b.propose)
	b.done.Go(b.collect)
	return b
}

// Submit puts a command into the log and returns its outcome once it is durable and applied.
//
// ErrOverloaded and ErrClosed: not stored. ErrAbandoned, and what Propose's wait returns: see there.
func (b *Batcher) Submit(ctx context.Context, cmd storage.Command) (storage.Outcome, error) {
	t, err := b.Enqueue(cmd)
	if err != nil {
		return storage.Outcome{}, err
	}
	return t.Wait(ctx)
}

// Ticket stands for a command that was admitted.
type Ticket struct{ c *call }

// Enqueue admits a command and does not wait for its outcome. Commands that one caller enqueues one after
// the other are applied in that order. ErrOverloaded and ErrClosed: not stored.
func (b *Batcher) Enqueue(cmd storage.Command) (Ticket, error) {
	c := &call{cmd: cmd, answer: make(chan answer, 1)}
	return Ticket{c}, b.admit(c)
}

// Wait returns the outcome once it is durable and applied. It may be called once.
func (t Ticket) Wait(ctx context.Context) (storage.Outcome, error) {
	select {
	case a := <-t.c.answer:
		return a.outcome, a.err
	case <-ctx.Done():
	}
	select {
	case a := <-t.c.answer: // came at the last moment
		return a.outcome, a.err
	default:
		return storage.Outcome{}, fmt.Errorf("%w: %w", ErrAbandoned, context.Cause(ctx))
	}
}

func (b *Batcher) admit(c *call) error {
	size := int64(c.cmd.Size())
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.mu.closed:
		return ErrClosed
	case b.mu.bytes > 0 && b.mu.bytes+size > b.opts.QueueBytes:
		b.metrics.refused.Inc()
		return fmt.Errorf("%w: %d of %d bytes", ErrOverloaded, b.mu.bytes, b.opts.QueueBytes)
	}
	b.mu.bytes += size
	b.mu.queue = append(b.mu.queue, c)
	b.signal()
	return nil
}

func (b *Batcher) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// propose takes as much of the queue as fits, as late as possible: only once a proposal may start.
func (b *Batcher) propose() {
	defer close(b.inflight)
	for {
		b.slots <- struct{}{}
		calls, bytes := b.take()
		if calls == nil {
			return
		}
		p := storage.NewProposal(b.opts.Cluster, int(bytes))
		for _, c := range calls {
			p.Add(c.cmd)
		}
		begun := b.opts.Clock()
		wait, err := b.opts.Propose(p.Seal(begun.UnixNano()))
		if err != nil {
			wait = func() ([]storage.Outcome, error) { return nil, err }
		}
		b.metrics.commands.Observe(float64(len(calls)))
		b.metrics.bytes.Observe(float64(bytes))
		b.inflight <- proposal{calls: calls, bytes: bytes, wait: wait, begun: begun}
	}
}

// take waits for commands and cuts a proposal's worth off the queue; nil when closed and empty.
func (b *Batcher) take() ([]*call, int64) {
	for {
		b.mu.Lock()
		if n := len(b.mu.queue); n > 0 {
			calls, bytes := b.cutLocked()
			b.mu.Unlock()
			return calls, bytes
		}
		closed := b.mu.closed
		b.mu.Unlock()
		if closed {
			return nil, 0
		}
		<-b.wake
	}
}

func (b *Batcher) cutLocked() ([]*call, int64) {
	var n int
	var bytes int64
	for _, c := range b.mu.queue {
		size := int64(c.cmd.Size())
		if n > 0 && bytes+size > int64(b.opts.ProposalBytes) {
			break
		}
		bytes += size
		n++
	}
	calls := b.mu.queue[:n:n]
	b.mu.queue = b.mu.queue[n:]
	if len(b.mu.queue) == 0 {
		b.mu.queue = nil
	}
	return calls, bytes
}

// collect answers proposals in the order in which they were made.
func (b *Batcher) collect() {
	for p := range b.inflight {
		outcomes, err := p.wait()
		<-b.slots
		if err == nil && len(outcomes) != len(p.calls) {
			panic(fmt.Sprintf("batch: %d outcomes for %d commands", len(outcomes), len(p.calls)))
		}
		b.mu.Lock()
		b.mu.bytes -= p.bytes
		b.mu.Unlock()
		for i, c := range p.calls {
			a := answer{err: err}
			if err == nil {
				a.outcome = outcomes[i]
			}
			c.answer <- a
		}
		b.metrics.latency.Observe(b.opts.Clock().Sub(p.begun).Seconds())
	}
}

// Close refuses new commands, waits until the admitted ones are answered, and returns.
func (b *Batcher) Close() {
	b.mu.Lock()
	b.mu.closed = true
	b.signal()
	b.mu.Unlock()
	b.done.Wait()
	b.metrics.unregister(b.opts.Registerer)
}
