package limits

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"runlog/projector/usage"
	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/machine/tenant"
)

const (
	// maxTenants are counted one by one at a time. Beyond them, those that are new share one count.
	maxTenants = 10_000
	// refresh is how long a change of limits may take until it counts.
	refresh = time.Second
	// quotaDelay is the retry delay of what is over a limit that is no rate.
	quotaDelay = 5 * time.Second
)

// MaxRunningRuns is the highest limit of running runs: the limiter counts them one by one.
const MaxRunningRuns = 10_000

// Bytes returns what an append counts, in bytes: about what it takes in memory.
func Bytes(a *storage.Append) (n int64) {
	for i := range a.Events {
		n += usage.Bytes(&a.Events[i])
	}
	return n
}

// Options of a limiter. All are required.
type Options struct {
	// Amounts reads what a tenant may use; 0: no limit.
	Amounts    func(tenant string) (tenant.Amounts, error)
	Clock      func() time.Time
	Registerer prometheus.Registerer
}

// Usage measures what tenants have.
type Usage interface {
	// StoredBytes returns what the events of a tenant count, as Bytes does.
	StoredBytes(tenant string) (uint64, error)
	// OpenRuns returns how many runs of a tenant are not over, at most limit.
	OpenRuns(tenant string, limit int) (int, error)
}

// Limiter counts what tenants use at this node.
type Limiter struct {
	opts    Options
	refused *prometheus.CounterVec // by limit
	usage   atomic.Pointer[Usage]

	mu      sync.RWMutex
	tenants map[string]*Tenant
	others  *Tenant // those beyond maxTenants
}

// New returns a limiter. Close unregisters its metrics.
func New(opts Options) *Limiter {
	l := &Limiter{opts: opts, tenants: map[string]*Tenant{}, refused: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "runlog", Subsystem: "tenants", Name: "refused_total",
		Help: "Requests refused because a tenant was over a limit, by limit: events, bytes, streams, stored_bytes, running_runs (SEC-6).",
	}, []string{"limit"})}
	for _, limit := range []string{"events", "bytes", limitStreams, limitStored, limitRuns} {
		l.refused.WithLabelValues(limit)
	}
	l.others = &Tenant{l: l}
	opts.Registerer.MustRegister(l.refused)
	return l
}

// Measure makes the limiter count stored bytes and running runs too. Before, they are not limited.
func (l *Limiter) Measure(u Usage) { l.usage.Store(&u) }

// Close unregisters the metrics.
func (l *Limiter) Close() { l.opts.Registerer.Unregister(l.refused) }

// Tenant returns the count of a tenant. The name is empty where no tenant is known: nothing is
// limited then.
func (l *Limiter) Tenant(name string) *Tenant {
	l.mu.RLock()
	t := l.tenants[name]
	l.mu.RUnlock()
	if t != nil {
		return t
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.tenants[name]; t != nil {
		return t
	}
	if len(l.tenants) >= maxTenants {
		l.forgetLocked()
	}
	if len(l.tenants) >= maxTenants {
		return l.others
	}
	t = &Tenant{l: l, Name: name}
	l.tenants[name] = t
	return t
}

// forgetLocked forgets the tenants that use nothing: a new count of theirs would be the same.
func (l *Limiter) forgetLocked() {
	now := l.opts.Clock()
	for name, t := range l.tenants {
		if t.idle(now) {
			delete(l.tenants, name)
		}
	}
}

// Tenant counts what a tenant uses.
type Tenant struct {
	l    *Limiter
	Name string
	// Reserved is in bytes the memory of its appends in flight. The replica adds and subtracts.
	Reserved atomic.Int64

	mu struct {
		sync.Mutex
		amounts       tenant.Amounts
		read          time.Time // when amounts were read; zero: never
		events, bytes bucket
		streams       uint64
		stored, runs  quota
	}
}

// idle reports whether the tenant uses nothing, and has used up nothing of its rates.
func (t *Tenant) idle(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.streams == 0 && t.Reserved.Load() == 0 && now.Sub(t.mu.read) > refresh &&
		t.mu.events.full(now, t.mu.amounts.EventsPerSecond) && t.mu.bytes.full(now, t.mu.amounts.BytesPerSecond)
}

// amountsLocked returns what the tenant may use now.
func (t *Tenant) amountsLocked(now time.Time) (*tenant.Amounts, error) {
	if age := now.Sub(t.mu.read); t.mu.read.IsZero() || age >= refresh || age < 0 {
		a, err := t.l.opts.Amounts(t.Name)
		if err != nil {
			return nil, fmt.Errorf("limits: read those of tenant %q: %w", t.Name, err)
		}
		t.mu.amounts, t.mu.read = a, now
	}
	return &t.mu.amounts, nil
}

// Admit counts an append, or refuses it. A refused append counts nothing. makesRun reports whether
// it makes a run, and is called only if that matters.
func (t *Tenant) Admit(events int, bytes int64, makesRun func() bool) error {
	if t.Name == "" && t != t.l.others {
		return nil
	}
	now := t.l.opts.Clock()
	t.mu.Lock()
	defer t.mu.Unlock()
	a, err := t.amountsLocked(now)
	if err != nil {
		return err
	}
	if wait := t.mu.events.wait(now, a.EventsPerSecond); wait > 0 {
		return t.overRate("events", a.EventsPerSecond, wait)
	}
	if wait := t.mu.bytes.wait(now, a.BytesPerSecond); wait > 0 {
		return t.overRate("bytes", a.BytesPerSecond, wait)
	}
	newRun, err := t.admitQuotasLocked(now, a, makesRun)
	if err != nil {
		return err
	}
	t.mu.events.take(a.EventsPerSecond, float64(events))
	t.mu.bytes.take(a.BytesPerSecond, float64(bytes))
	t.mu.stored.used += uint64(bytes)
	if newRun {
		t.mu.runs.used++
	}
	return nil
}

func (t *Tenant) overRate(what string, limit uint64, wait time.Duration) error {
	t.l.refused.WithLabelValues(what).Inc()
	return &contract.Error{Reason: contract.ReasonTenantRateLimited, RetryAfter: wait,
		Message: fmt.Sprintf("tenant %s appends more than its %d %s a second; the request was not stored: send it again after the delay, "+
			"or ask an admin of the cluster for a higher limit", contract.Quote(t.Name), limit, what),
		Metadata: map[string]string{"tenant_id": t.Name, "limit": what + "_per_second"}}
}

// Open counts a stream until it is closed, or refuses it.
func (t *Tenant) Open() error {
	now := t.l.opts.Clock()
	t.mu.Lock()
	defer t.mu.Unlock()
	a, err := t.amountsLocked(now)
	if err != nil {
		return err
	}
	if a.Streams > 0 && t.mu.streams >= a.Streams {
		return t.overQuota(limitStreams, fmt.Sprintf("has its %d streams open at this node: close one, or", a.Streams))
	}
	t.mu.streams++
	return nil
}

// CloseStream ends a stream that was opened.
func (t *Tenant) CloseStream() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.streams--
}

// bucket is what is left of a rate. Its zero value is full.
type bucket struct {
	used float64 // of one second's worth; more: it was borrowed
	at   time.Time
}

// wait pays back what the time since has earned, and returns how long nothing is left yet.
func (b *bucket) wait(now time.Time, rate uint64) time.Duration {
	if rate == 0 {
		*b = bucket{}
		return 0
	}
	if since := now.Sub(b.at); since > 0 {
		b.used = max(0, b.used-since.Seconds()*float64(rate))
	}
	b.at = now
	if b.used < float64(rate) {
		return 0
	}
	seconds := (b.used - float64(rate) + 1) / float64(rate)
	return time.Duration(min(math.Ceil(seconds*1e3), 1e9)) * time.Millisecond
}

func (b *bucket) take(rate uint64, n float64) {
	if rate > 0 {
		b.used += n
	}
}

func (b *bucket) full(now time.Time, rate uint64) bool {
	return b.wait(now, rate) == 0 && b.used == 0
}
