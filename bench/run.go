package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// Names of the limits.
const (
	Fsync        = "fsync"
	SeqWrite     = "seq-write"
	GRPCEcho     = "grpc-echo"
	GRPCStream   = "grpc-stream"
	GRPCSnapshot = "grpc-snapshot"
	GRPCIdle     = "grpc-idle"
)

// limit is a limit of the machine: it involves no system.
type limit struct {
	w    Workload
	open func(*bed) (*work, error)
}

// idleBeside is the limit that the memory of a workload's watchers is compared with.
func (w *Workload) idleBeside() Workload {
	return Workload{Name: GRPCIdle, Callers: w.Watchers, Batch: 1}
}

// limits lists what the workloads are compared with: each with the echo that has as many callers.
func (o *Options) limits() []limit {
	one := func(name string) Workload { return Workload{Name: name, Callers: 1, Batch: 1} }
	all := []limit{{one(Fsync), openFsync}, {one(SeqWrite), openWrite}}
	add := func(w Workload, open func(*bed) (*work, error)) {
		if !slices.ContainsFunc(all, func(l limit) bool { return l.w == w }) {
			all = append(all, limit{w, open})
		}
	}
	for _, callers := range o.EchoCallers {
		add(Workload{Name: GRPCEcho, Callers: callers, Batch: 1}, openEcho)
	}
	for i := range o.Workloads {
		switch w := o.Workloads[i].echo(); w.Name {
		case GRPCStream:
			add(w, openEchoStream)
		case GRPCEcho:
			add(w, openEcho)
		}
		if o.Workloads[i].Watchers > 0 {
			add(o.Workloads[i].idleBeside(), openIdle)
		}
	}
	if len(o.Workloads) == 0 {
		add(Workload{Name: GRPCStream, Callers: 4, InFlight: 64, Batch: 1}, openEchoStream)
	}
	return all
}

// echo is the limit that a workload is compared with: as many calls at a time, over streams where
// it has them.
func (w *Workload) echo() Workload {
	if w.Name == Snapshots {
		return Workload{Name: GRPCSnapshot, Callers: w.Callers, Batch: 1}
	}
	if w.InFlight > 0 {
		return Workload{Name: GRPCStream, Callers: w.Callers, InFlight: w.InFlight, Batch: 1}
	}
	return Workload{Name: GRPCEcho, Callers: w.Callers, Batch: 1}
}

// Run measures, in each round, the limits and then the workloads, each on one system after the
// other. Calls that a system fails are counted in the results; an error means that a limit could
// not be measured, that a system did not open, or that ctx ended. What was measured before it is
// reported with it.
func Run(ctx context.Context, o Options) (*Report, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.text = fillText(o.PayloadBytes)
	r := newReport(&o)
	for round := range o.Rounds {
		if err := o.round(ctx, r, round); err != nil {
			return r, err
		}
	}
	return r, nil
}

func (o *Options) round(ctx context.Context, r *Report, round int) error {
	for _, l := range o.limits() {
		if err := o.measureLimit(ctx, l, round, r); err != nil {
			return err
		}
	}
	for i := range o.Workloads {
		for turn := range o.Systems {
			// Each round begins with another system, so that none always comes first.
			s := &o.Systems[(turn+round)%len(o.Systems)]
			res, err := o.measureSystem(ctx, s, &o.Workloads[i], round, r)
			if unsupported, ok := errors.AsType[*unsupportedError](err); ok && len(o.Systems) > 1 {
				r.leaveOut(s.Name, &o.Workloads[i], unsupported)
				continue
			}
			if res != nil {
				res.Ratios = r.ratios(res)
				o.report(r, res)
			}
			if err != nil {
				return fmt.Errorf("bench: %s on %s: %w", o.Workloads[i].label(), s.Name, err)
			}
		}
	}
	return nil
}

func (o *Options) report(r *Report, res *Result) {
	r.Results = append(r.Results, *res)
	if o.Measured != nil {
		o.Measured(*res)
	}
}

func (o *Options) measureLimit(ctx context.Context, l limit, round int, r *Report) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("bench: %s: %w", l.w.Name, err)
		}
	}()
	b := &bed{o: o, w: l.w, session: newSession(o.PayloadBytes, o.text), round: round}
	w, err := l.open(b)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.release()) }()
	res, err := o.measure(ctx, b, w)
	if err != nil {
		return err
	}
	if len(res.Errors) > 0 {
		return res.failure
	}
	res.Limit, res.Round = true, round+1
	o.report(r, res)
	return nil
}

// measureSystem returns what was measured, also when what comes after it failed, and nil when
// nothing was.
func (o *Options) measureSystem(ctx context.Context, s *System, wl *Workload, round int, r *Report) (res *Result, err error) {
	dir, err := os.MkdirTemp(o.Dir, "system-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	target, err := s.Open(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	r.describe(s.Name, target)
	b := &bed{o: o, w: *wl, session: newSession(o.PayloadBytes, o.text), target: target, system: s.Name, round: round}
	b.session.dense = !s.Sparse
	k, _ := kindOf(wl.Name)
	w, err := k.open(b)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.release()) }()
	if w.prepare != nil {
		if err := w.prepare(ctx); err != nil {
			return nil, err
		}
	}
	if w.limit != nil && r.limitOf(w.limit.w, round+1) == nil {
		if err := o.measureLimit(ctx, *w.limit, round, r); err != nil {
			return nil, err
		}
	}
	if res, err = o.measure(ctx, b, w); res == nil {
		return nil, err
	}
	res.System, res.Round = s.Name, round+1
	return res, errors.Join(err, afterwards(ctx, &k, target, res))
}

// afterwards adds to a result what the target itself has to say.
func afterwards(ctx context.Context, k *Kind, target Target, res *Result) error {
	// A process that was started again has not done all of the work.
	if m, ok := target.(Meter); ok && k.Name != Recovery && k.Name != Failover {
		if u, err := m.Usage(); err == nil {
			res.Usage = &u
		}
	}
	c, ok := target.(Checker)
	if !ok || k.Group {
		return nil
	}
	err := c.Check(ctx)
	if _, wrong := errors.AsType[*AnswerError](err); wrong {
		res.fail(err)
		return nil
	}
	return err
}

func (o *Options) newLoop(w *Workload) *loop {
	return &loop{warmUp: o.WarmUp, duration: o.Duration, calls: o.Calls, rate: w.Rate, grace: o.Grace}
}

// measure a workload that is open.
func (o *Options) measure(ctx context.Context, b *bed, w *work) (*Result, error) {
	if w.measure != nil {
		return w.measure(ctx, o, b, w)
	}
	l := o.newLoop(&b.w)
	if err := w.warm(ctx, l); err != nil {
		return nil, err
	}
	return o.drive(ctx, b, w, l)
}

// drive the lanes of a workload once.
func (o *Options) drive(ctx context.Context, b *bed, w *work, l *loop) (*Result, error) {
	unwatch, finish := o.watch(b, l), func() {}
	if w.beside != nil {
		finish = w.beside.run(ctx, l)
	}
	t, err := l.run(ctx, w.lanes)
	finish()
	unwatch()
	if err != nil {
		return nil, err
	}
	res := t.result(&b.w, w.requestBytes, l.acknowledged.Load())
	if w.beside != nil {
		res.Reads = w.beside.results()
	}
	return res, nil
}

// watch tells Progress about a loop until the returned function is called.
func (o *Options) watch(b *bed, l *loop) (stop func()) {
	if o.Progress == nil {
		return func() {}
	}
	done, gone := make(chan struct{}), make(chan struct{})
	p := Progress{System: b.system, Name: b.w.Name, Round: b.round + 1, Rounds: o.Rounds, Total: l.warmUp + l.duration, Steps: l.steps}
	go func() {
		defer close(gone)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for begun := time.Now(); ; {
			select {
			case <-done:
				return
			case now := <-tick.C:
				p.Elapsed, p.Events, p.Step = now.Sub(begun), l.acknowledged.Load(), int(l.step.Load())
				o.Progress(p)
			}
		}
	}()
	return func() {
		close(done)
		<-gone
	}
}
