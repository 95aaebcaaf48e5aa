package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"runlog/client"
)

// Bounds of Options.
const (
	MinPayloadBytes = 16
	MaxPayloadBytes = 1 << 20
	MaxBatch        = 1000 // APP-3
	MaxCallers      = 10_000
)

// Options of a run.
type Options struct {
	// Workloads to measure, in this order. Default: all of Workloads. The limits are always measured.
	Workloads []string
	// Duration that each workload and each limit is measured for. Default: 5 s.
	Duration time.Duration
	// WarmUp goes before each and is left out. Default: a fifth of Duration, at most 2 s.
	WarmUp time.Duration
	// Calls ends a workload or a limit before its duration is over; 0: it does not.
	Calls uint64
	// Callers of each workload and of grpc-echo. Default: 256, and 16 of append-batch.
	Callers int
	// Batch is how many events one call of append-batch carries, at most 1,000. Default: 100.
	Batch int
	// PayloadBytes is the size of an event's payload. Default: 400.
	PayloadBytes int
	// Dir is where fsync writes its file: the file system of the node's data. Required.
	Dir string
	// Node hands out the node that a workload appends to, and what to call afterwards. The client must not
	// repeat calls by itself, or it hides their failures. Required.
	Node func(ctx context.Context) (c *client.Client, release func() error, err error)
	// Grace is how long calls that are under way at the end are waited for. Default: 30 s.
	Grace time.Duration
	// Progress is told every 200 ms how far the run is, from another goroutine. Default: nobody.
	Progress func(Progress)
	// Measured is told each result as soon as it is known. Default: nobody.
	Measured func(Result)
}

// Progress of a run.
type Progress struct {
	Name           string
	Elapsed, Total time.Duration // of this workload or limit, warm-up included
	Events         uint64        // acknowledged so far
}

const progressEvery = 200 * time.Millisecond

// EnsureDefaults fills in what is left out.
func (o *Options) EnsureDefaults() {
	if len(o.Workloads) == 0 {
		o.Workloads = Workloads()
	}
	if o.Duration == 0 {
		o.Duration = 5 * time.Second
	}
	if o.WarmUp == 0 {
		o.WarmUp = min(o.Duration/5, 2*time.Second)
	}
	if o.Batch == 0 {
		o.Batch = 100
	}
	if o.PayloadBytes == 0 {
		o.PayloadBytes = 400
	}
	if o.Grace == 0 {
		o.Grace = 30 * time.Second
	}
}

// Validate reports every fault of the options.
func (o *Options) Validate() error {
	var errs []error
	within := func(name string, n, low, high int) {
		if n < low || n > high {
			errs = append(errs, fmt.Errorf("bench: %s is %d, want %d to %d", name, n, low, high))
		}
	}
	for _, name := range o.Workloads {
		if !slices.Contains(Workloads(), name) {
			errs = append(errs, fmt.Errorf("bench: no workload %q, there are %s", name, strings.Join(Workloads(), ", ")))
		}
	}
	if o.Duration <= 0 || o.WarmUp < 0 {
		errs = append(errs, fmt.Errorf("bench: duration is %v after a warm-up of %v, want more than 0 and 0 or more", o.Duration, o.WarmUp))
	}
	within("callers", o.Callers, 0, MaxCallers)
	within("batch", o.Batch, 1, MaxBatch)
	within("payload bytes", o.PayloadBytes, MinPayloadBytes, MaxPayloadBytes)
	if o.Dir == "" {
		errs = append(errs, errors.New("bench: Options.Dir is empty"))
	}
	if o.Node == nil {
		errs = append(errs, errors.New("bench: Options.Node is nil"))
	}
	return errors.Join(errs...)
}

// Names of the limits.
const (
	GRPCEcho = "grpc-echo"
	Fsync    = "fsync"
)

// Workloads returns the names of the workloads.
func Workloads() []string { return []string{"append-unary", "append-batch"} }

// workload is one thing to measure.
type workload struct {
	name           string
	limit          bool
	callers, batch int
	// open prepares callers, and tells about how much each sends and what to call afterwards.
	open func(context.Context, *workload) (callers []caller, requestBytes int, release func() error, err error)
}

// plan lists what a run measures: the limits first.
func (o *Options) plan() []workload {
	callers := func(usual int) int {
		if o.Callers > 0 {
			return o.Callers
		}
		return usual
	}
	plan := []workload{
		{name: Fsync, limit: true, callers: 1, batch: 1, open: o.openFsync},
		{name: GRPCEcho, limit: true, callers: callers(256), batch: 1, open: o.openEcho},
	}
	for _, name := range o.Workloads {
		switch name {
		case "append-unary":
			plan = append(plan, workload{name: name, callers: callers(256), batch: 1, open: o.openAppend})
		case "append-batch":
			plan = append(plan, workload{name: name, callers: callers(16), batch: o.Batch, open: o.openAppend})
		}
	}
	return plan
}

// Run measures the limits and then the workloads, one after the other. Calls that a node fails are counted
// in the results; an error means that a limit could not be measured, that there is no node to talk to, or
// that ctx ended. What was measured before it is returned with it.
func Run(ctx context.Context, o Options) ([]Result, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	var results []Result
	measured := make(map[string]*Result)
	for _, w := range o.plan() {
		r, err := o.measure(ctx, &w)
		if r != nil {
			measured[w.name] = r
			if !w.limit {
				r.Ratios = ratios(r, measured[GRPCEcho], measured[Fsync])
			}
			results = append(results, *r)
			if o.Measured != nil {
				o.Measured(*r)
			}
		}
		if err != nil {
			return results, fmt.Errorf("bench: %s: %w", w.name, err)
		}
	}
	return results, nil
}

// measure returns what was measured, also when what comes after it failed, and nil when nothing was.
func (o *Options) measure(ctx context.Context, w *workload) (r *Result, err error) {
	callers, size, release, err := w.open(ctx, w)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, release()) }()
	l := &loop{warmUp: o.WarmUp, duration: o.Duration, calls: o.Calls, grace: o.Grace}
	if !w.limit {
		// One call alone first: it makes the connection, and where it fails no other will do better.
		n, err := callers[0](ctx)
		if err != nil {
			return nil, err
		}
		l.acknowledged.Add(uint64(n))
	}
	stop := o.watch(w.name, l)
	t, err := l.run(ctx, callers)
	stop()
	if err == nil && w.limit {
		err = t.first
	}
	if err != nil {
		return nil, err
	}
	return t.result(w, size, l.acknowledged.Load()), nil
}

// watch tells Progress about a loop until the returned function is called.
func (o *Options) watch(name string, l *loop) (stop func()) {
	if o.Progress == nil {
		return func() {}
	}
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for begun := time.Now(); ; {
			select {
			case <-done:
				return
			case now := <-tick.C:
				o.Progress(Progress{Name: name, Elapsed: now.Sub(begun), Total: l.warmUp + l.duration, Events: l.acknowledged.Load()})
			}
		}
	}()
	return func() {
		close(done)
		<-gone
	}
}
