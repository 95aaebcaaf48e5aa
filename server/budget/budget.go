package budget

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"runlog/proto/contract"
)

// Class says up to where a draw may fill the budget.
type Class uint8

// The classes, in the order of their ceilings.
const (
	// Shared is everything but small appends: reads, large appends, bodies of other calls.
	Shared Class = iota
	// Arriving is the body of a small append that is not complete. A client that sends no more of
	// it holds this much, so it cannot take all that is kept for appends.
	Arriving
	// Append is a small append that has arrived.
	Append

	classes = 3
)

var names = [classes]string{"shared", "arriving", "append"}

// SmallAppend is the largest request, in bytes, that draws from what is kept for appends. A batch
// of 1,000 events of 1 KiB is about as large.
const SmallAppend = 1 << 20

const (
	// OpenCall is about what gRPC and the goroutines of an open call take, in bytes. Every call
	// draws it.
	OpenCall = 16 << 10
	// Uncounted is the size, in bytes, of requests and answers that draw nothing more.
	Uncounted = OpenCall
)

// OfAppend returns the class of an append of so many bytes.
func OfAppend(bytes int64) Class {
	if bytes > SmallAppend {
		return Shared
	}
	return Append
}

// retryDelay is the delay for a refused caller. Appends in flight are answered in about that time.
const retryDelay = 250 * time.Millisecond

// Budget is an amount of memory. The nil Budget has no limit.
type Budget struct {
	ceilings [classes]int64
	used     atomic.Int64 // Invariant: at most the ceiling of Append.
	drawn    [classes]atomic.Int64
	refused  [classes]atomic.Int64
	turns    chan struct{}
}

// turnsPerCore is how many reads of a page a core has at a time. More would only make other
// goroutines wait longer for a core.
const turnsPerCore = 4

// New makes a budget of so many bytes. Half is kept for small appends, and half of that for those
// that have arrived.
func New(bytes int64) *Budget {
	return &Budget{ceilings: [classes]int64{bytes / 2, bytes / 4 * 3, bytes}, turns: make(chan struct{}, turnsPerCore*runtime.GOMAXPROCS(0))}
}

// Turn waits until the caller may read a page, which takes a core for milliseconds. The caller ends
// its turn with done. Error: that of the context.
func (b *Budget) Turn(ctx context.Context) (done func(), err error) {
	if b == nil {
		return func() {}, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case b.turns <- struct{}{}:
		return func() { <-b.turns }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Used returns the bytes in use.
func (b *Budget) Used() int64 { return b.used.Load() }

// Free returns how much a class may draw now.
func (b *Budget) Free(c Class) int64 { return max(b.ceilings[c]-b.used.Load(), 0) }

// Acquire draws bytes until the grant is released. A request that is larger than the ceiling of its
// class counts as the ceiling: it passes while nothing else is in use. Error: OVERLOADED.
func (b *Budget) Acquire(c Class, bytes int64) (Grant, error) {
	g := Grant{budget: b, class: c}
	err := g.Grow(bytes)
	return g, err
}

// Grant is a part of a budget. The zero Grant has nothing. It is not safe for concurrent use.
type Grant struct {
	budget *Budget
	class  Class
	bytes  int64
}

// Grow draws more bytes. After an error the grant has what it had.
func (g *Grant) Grow(bytes int64) error { return g.grow(bytes, g.bytes) }

// grow draws bytes for a request that already has some.
func (g *Grant) grow(bytes, had int64) error {
	b := g.budget
	if b == nil {
		return nil
	}
	ceiling := b.ceilings[g.class]
	bytes = min(bytes, ceiling-had)
	for {
		used := b.used.Load()
		if bytes > 0 && bytes > ceiling-used {
			b.refused[g.class].Add(1)
			return &contract.Error{Reason: contract.ReasonOverloaded, RetryAfter: retryDelay,
				Message: "the memory of the node for requests and open streams is in use; nothing was stored: send the request again after the delay; " +
					"if that is refused too, close streams that are not needed, or give the node more --memory"}
		}
		if b.used.CompareAndSwap(used, used+bytes) {
			b.drawn[g.class].Add(bytes)
			g.bytes += bytes
			return nil
		}
	}
}

// Move makes the grant one of so many bytes of a class, in one step. After an error it has what it
// had.
func (g *Grant) Move(b *Budget, c Class, bytes int64) error {
	next := Grant{budget: b, class: c}
	if b != nil && b == g.budget {
		had := min(g.bytes, bytes, b.ceilings[c])
		if err := next.grow(bytes-had, had); err != nil {
			return err
		}
		b.drawn[g.class].Add(-had)
		b.drawn[c].Add(had)
		g.bytes -= had
		next.bytes += had
	} else if err := next.Grow(bytes); err != nil {
		return err
	}
	g.Release()
	*g = next
	return nil
}

// Release returns what the grant has. It may be called again.
func (g *Grant) Release() {
	if g.bytes != 0 {
		g.budget.used.Add(-g.bytes)
		g.budget.drawn[g.class].Add(-g.bytes)
		g.bytes = 0
	}
}

// Collectors returns the metrics of the budget.
func (b *Budget) Collectors() []prometheus.Collector {
	all := []prometheus.Collector{prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "runlog", Subsystem: "memory", Name: "budget_bytes",
		Help: "Memory for requests and answers, of which every request takes a part.",
	}, func() float64 { return float64(b.ceilings[Append]) })}
	for c, name := range names {
		labels := prometheus.Labels{"class": name}
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "runlog", Subsystem: "memory", Name: "used_bytes", ConstLabels: labels,
			Help: "Memory in use by requests and answers.",
		}, func() float64 { return float64(b.drawn[c].Load()) }), prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: "runlog", Subsystem: "memory", Name: "refused_total", ConstLabels: labels,
			Help: "Requests that were refused as OVERLOADED because the memory for requests was in use.",
		}, func() float64 { return float64(b.refused[c].Load()) }))
	}
	return all
}
