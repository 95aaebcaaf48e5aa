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
	// ErrAbandoned means that the caller's context ended first. The command may be stored yet
	// (APP-10).
	ErrAbandoned = errors.New("batch: the caller stopped waiting")
)

// Options of a batcher.
type Options struct {
	// Propose hands a log entry to the group. Unless it returns an error, done is called once,
	// later, with the outcomes of the commands, in order, or an error; it does not block. Required.
	Propose func(entry []byte, done func([]storage.Outcome, error)) error
	// Check returns why a command must not be proposed. Default: all may be.
	Check func(storage.Command) error
	// Cluster goes into every proposal. Required.
	Cluster storage.ClusterID
	// Stamp returns persistedAt of a proposal, in nanoseconds since 1970. Default: by time.Now.
	Stamp func() int64
	// ProposalBytes closes a proposal. A command that is larger goes alone. Default: 1 MiB (D1).
	ProposalBytes int
	// Outstanding bounds the proposals without an answer. The first may be small, because it does
	// not wait; another one leaves only when it is full. Default: 2; more gained nothing (D1).
	Outstanding int
	// QueueBytes bounds what is admitted and not yet answered. Default: 64 MiB.
	QueueBytes int64
	// Registerer of metrics. Default: a registry of its own.
	Registerer prometheus.Registerer
}

// EnsureDefaults fills in what is left out.
func (o *Options) EnsureDefaults() {
	if o.Check == nil {
		o.Check = func(storage.Command) error { return nil }
	}
	if o.Stamp == nil {
		o.Stamp = func() int64 { return time.Now().UnixNano() }
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

// Batcher gathers commands into proposals.
//
// A proposal costs one fsync on a majority, whether it has one command or a thousand. So commands
// that wait at the same time share one. A command goes through three functions:
//
//	admit    holds mu: refuses it, or counts its bytes and puts it at the end of its line
//	flush    holds proposing: cuts the next proposal off the lines, and hands it to Propose
//	answer   is called by Propose's done: frees the room of the proposal, and answers its calls
//
// Two things decide when a proposal is cut. With nothing outstanding, at once: a single caller pays
// for no timer. Otherwise only when it is full, and at most Outstanding are outstanding: while one
// proposal is on its way to the disk, the next would wait for the same disk, and each command that
// still joins it shares its fsync. So the size of proposals follows the load by itself.
//
// Two goroutines call flush. The caller of Enqueue does if nothing is outstanding: on an idle node
// the command would otherwise wait until another goroutine wakes up. It only tries the lock
// proposing. If that is taken, its holder may have cut already. So Enqueue wakes run, which waits
// for the lock, and does the rest. Each function that makes dueLocked true, under mu, then calls
// flush or signal: no command is forgotten.
type Batcher struct {
	// Set by New, and never again.

	opts    Options
	metrics *metrics

	// mu guards the queues and the counts. It is never held while something is encoded or proposed,
	// so that commands are admitted meanwhile.
	mu struct {
		sync.Mutex
		lines
		// queued is in bytes what is in the queues of all lines.
		queued int64
		// bytes are those admitted and not yet answered, whether queued or proposed. Invariant: ≤
		// QueueBytes, unless one command alone is larger.
		bytes int64
		// outstanding counts the proposals from their cut to their answer. Invariant: ≤
		// Options.Outstanding.
		outstanding int
		closed      bool // nothing more is admitted
	}
	// proposing is held from cutting a proposal off the lines until Propose has it. So proposals
	// have the order of the cuts, and their stamps rise in this order. It is taken before mu.
	proposing sync.Mutex
	// wake has room for one: there may be something to propose, or to close. Only run receives.
	wake chan struct{}
	// done counts run, and each proposal from its cut to its answer. run ends only when no proposal
	// is outstanding, so done.Add is never called at 0.
	done sync.WaitGroup
}

// call is one admitted command.
type call struct {
	cmd    storage.Command // the goroutine that cuts it off takes it out, and frees its memory
	line   *line
	size   int64
	answer chan answer // has room for the one answer, so that an abandoned call blocks no sender
}

type answer struct {
	outcome storage.Outcome
	err     error
}

// New starts a batcher. Close ends it.
func New(opts Options) *Batcher {
	opts.EnsureDefaults()
	b := &Batcher{opts: opts, wake: make(chan struct{}, 1)}
	b.metrics = newMetrics(opts.Registerer, b)
	b.done.Go(b.run)
	return b
}

// Enqueue admits a command to a line and does not wait for its outcome. Lines share the proposals
// fairly. Commands of one line are applied in the order in which they were enqueued. ErrOverloaded,
// ErrClosed and what Options.Check returns: not stored.
//
// The caller waits with Ticket.Wait, or not at all.
func (b *Batcher) Enqueue(name string, cmd storage.Command) (Ticket, error) {
	if err := b.opts.Check(cmd); err != nil {
		return Ticket{}, err
	}
	c := &call{cmd: cmd, size: int64(cmd.Size()), answer: make(chan answer, 1)}
	idle, due, err := b.admit(name, c)
	if err != nil {
		return Ticket{}, err
	}
	// If another goroutine is proposing, it may have cut its proposal before this command came.
	if idle && b.proposing.TryLock() {
		b.flush()
		b.proposing.Unlock()
	} else if due {
		b.signal()
	}
	return Ticket{c}, nil
}

// admit puts a call into its line. idle: nothing is outstanding. due: something is to be proposed.
func (b *Batcher) admit(name string, c *call) (idle, due bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.mu.closed:
		return false, false, ErrClosed
	case b.mu.bytes > 0 && b.mu.bytes+c.size > b.opts.QueueBytes,
		b.mu.over(name, c.size, b.opts.QueueBytes-b.mu.bytes):
		b.metrics.refused.Inc()
		return false, false, fmt.Errorf("%w: %d of %d bytes", ErrOverloaded, b.mu.bytes, b.opts.QueueBytes)
	}
	b.mu.bytes += c.size
	b.mu.queued += c.size
	b.mu.add(name, c)
	return b.mu.outstanding == 0, b.dueLocked(), nil
}

// dueLocked reports whether to propose now. While a proposal is outstanding, the next one waits
// until it is full: it would wait for the same disk anyway, and every command that joins it costs
// less.
func (b *Batcher) dueLocked() bool {
	if b.mu.outstanding == 0 {
		return len(b.mu.waiting) > 0
	}
	return b.mu.outstanding < b.opts.Outstanding && b.mu.queued >= int64(b.opts.ProposalBytes)
}

// signal has run look whether a proposal is due, or all is answered.
func (b *Batcher) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// run proposes what no caller has proposed by itself, until the batcher is closed and all is
// answered.
func (b *Batcher) run() {
	for range b.wake {
		b.proposing.Lock()
		for b.flush() {
		}
		b.proposing.Unlock()
		if b.drained() {
			return
		}
	}
}

// drained reports whether run has nothing to do any more.
func (b *Batcher) drained() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.closed && b.mu.outstanding == 0 && len(b.mu.waiting) == 0
}

// flush makes the next proposal, if one is due, and reports whether it did. Its caller holds
// proposing.
func (b *Batcher) flush() bool {
	b.mu.Lock()
	if !b.dueLocked() {
		b.mu.Unlock()
		return false
	}
	calls, bytes := b.mu.cut(int64(b.opts.ProposalBytes))
	b.mu.queued -= bytes
	b.mu.outstanding++
	b.mu.Unlock()
	b.done.Add(1)
	p := storage.NewProposal(b.opts.Cluster, int(bytes))
	for _, c := range calls {
		p.Add(c.cmd)
		c.cmd = storage.Command{} // it is in the proposal
	}
	stamp, begun := b.opts.Stamp(), time.Now()
	b.metrics.commands.Observe(float64(len(calls)))
	b.metrics.bytes.Observe(float64(bytes))
	done := func(outcomes []storage.Outcome, err error) {
		b.metrics.latency.Observe(time.Since(begun).Seconds())
		b.answer(calls, bytes, outcomes, err)
		b.done.Done()
	}
	if err := b.opts.Propose(p.Seal(stamp), done); err != nil {
		done(nil, err)
	}
	return true
}

// answer gives the calls of a proposal their outcomes, and makes room for the next one. A goroutine
// of the proposer calls it, and must not be blocked: answer waits for mu alone.
func (b *Batcher) answer(calls []*call, bytes int64, outcomes []storage.Outcome, err error) {
	if err == nil && len(outcomes) != len(calls) {
		panic(fmt.Sprintf("batch: %d outcomes for %d commands", len(outcomes), len(calls)))
	}
	b.mu.Lock()
	b.mu.bytes -= bytes
	b.mu.release(calls)
	b.mu.outstanding--
	more := b.dueLocked() || b.mu.closed
	b.mu.Unlock()
	if more {
		b.signal()
	}
	for i, c := range calls {
		a := answer{err: err}
		if err == nil {
			a.outcome = outcomes[i]
		}
		c.answer <- a
	}
}

// Ticket is the claim of a command that was admitted to its one answer.
type Ticket struct{ c *call }

// Wait returns the outcome once it is durable and applied, or the error of Options.Propose or its
// done, or ErrAbandoned. It may be called once.
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

// closeTimeout is how long Close waits for answers, of the 10 s that a stop may take.
const closeTimeout = time.Second

// Close refuses new commands, and returns once the admitted ones are answered, or after
// closeTimeout: the proposer answers those that are left when it closes.
func (b *Batcher) Close() {
	b.mu.Lock()
	b.mu.closed = true
	b.signal()
	b.mu.Unlock()
	answered := make(chan struct{})
	go func() {
		b.done.Wait()
		close(answered)
	}()
	patience := time.NewTimer(closeTimeout)
	defer patience.Stop()
	select {
	case <-answered:
	case <-patience.C:
	}
	b.metrics.unregister(b.opts.Registerer)
}
