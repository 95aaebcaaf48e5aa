package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"runlog/bench/load"
	"runlog/bench/report"
	"runlog/bench/target"
)

// limit is a limit of the machine: it involves no system.
type limit struct {
	w    report.Workload
	open func(*bed) (*work, error)
}

// limits returns the limits that the workloads are compared with: for each the echo with as many
// callers.
func (o *Options) limits() []limit {
	one := func(name string) report.Workload { return report.Workload{Name: name, Callers: 1, Batch: 1} }
	all := []limit{{one(report.Fsync), openFsync}, {one(report.SeqWrite), openWrite}}
	add := func(w report.Workload, open func(*bed) (*work, error)) {
		if !slices.ContainsFunc(all, func(l limit) bool { return l.w == w }) {
			all = append(all, limit{w, open})
		}
	}
	for _, callers := range o.EchoCallers {
		add(report.Workload{Name: report.GRPCEcho, Callers: callers, Batch: 1}, openEcho)
	}
	for i := range o.Workloads {
		switch w := o.Workloads[i].Echo(); w.Name {
		case report.GRPCStream:
			add(w, openEchoStream)
		case report.GRPCEcho:
			add(w, openEcho)
		}
		if o.Workloads[i].Watchers > 0 {
			add(o.Workloads[i].IdleBeside(), openIdle)
		}
	}
	if len(o.Workloads) == 0 {
		add(report.Workload{Name: report.GRPCStream, Callers: 4, InFlight: 64, Batch: 1}, openEchoStream)
	}
	return all
}

// Run measures, in each round, the limits and then the workloads, each on one system after the
// other. It counts a system's failed calls in the results. It returns an error if a limit could not
// be measured, a system did not open, or ctx ended, and with it a report of the earlier results.
func Run(ctx context.Context, o Options) (*report.Report, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.text = load.FillText(o.PayloadBytes)
	r := newReport(&o)
	for round := range o.Rounds {
		if err := o.round(ctx, r, round); err != nil {
			return r, err
		}
	}
	return r, nil
}

func newReport(o *Options) *report.Report {
	return &report.Report{
		Machine: report.DescribeMachine(o.Dir),
		Settings: report.Settings{
			Seconds: o.Duration.Seconds(), WarmUpSeconds: o.WarmUp.Seconds(), PayloadBytes: o.PayloadBytes,
			Connections: o.Connections, Rounds: o.Rounds,
		},
	}
}

func (o *Options) round(ctx context.Context, r *report.Report, round int) error {
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
				r.LeaveOut(s.Name, &o.Workloads[i], unsupported.what)
				continue
			}
			if res != nil {
				res.Ratios = r.RatiosOf(res)
				o.report(r, res)
			}
			if err != nil {
				return fmt.Errorf("bench: %s on %s: %w", o.Workloads[i].Label(), s.Name, err)
			}
		}
	}
	return nil
}

func (o *Options) report(r *report.Report, res *report.Result) {
	r.Results = append(r.Results, *res)
	if o.Measured != nil {
		o.Measured(*res)
	}
}

func (o *Options) measureLimit(ctx context.Context, l limit, round int, r *report.Report) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("bench: %s: %w", l.w.Name, err)
		}
	}()
	b := &bed{o: o, w: l.w, session: load.NewSession(o.PayloadBytes, o.text), round: round}
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
		return res.Failure
	}
	res.Limit, res.Round = true, round+1
	o.report(r, res)
	return nil
}

// openSystem opens a system that has room for the watchers of a workload.
func openSystem(ctx context.Context, s *target.System, wl *report.Workload, dir string) (target.Target, error) {
	if wl.Watchers > 0 && s.OpenWatched != nil {
		return s.OpenWatched(ctx, dir, wl.Watchers)
	}
	return s.Open(ctx, dir)
}

// measureSystem returns the result, also with an error of a later step; nil without a result.
func (o *Options) measureSystem(ctx context.Context, s *target.System, wl *report.Workload, round int, r *report.Report) (res *report.Result, err error) {
	dir, err := os.MkdirTemp(o.Dir, "system-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	opened, err := openSystem(ctx, s, wl, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	if d, ok := opened.(target.Describer); ok {
		r.Describe(s.Name, d.Describe)
	}
	b := &bed{o: o, w: *wl, session: load.NewSession(o.PayloadBytes, o.text), target: opened, system: s.Name, round: round}
	b.session.Dense = !s.Sparse
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
	if w.limit != nil && r.Limit(w.limit.w, round+1) == nil {
		if err := o.measureLimit(ctx, *w.limit, round, r); err != nil {
			return nil, err
		}
	}
	if res, err = o.measure(ctx, b, w); res == nil {
		return nil, err
	}
	res.System, res.Round = s.Name, round+1
	return res, errors.Join(err, afterwards(ctx, &k, opened, res))
}

// afterwards adds the target's own data to a result.
func afterwards(ctx context.Context, k *Kind, t target.Target, res *report.Result) error {
	// A process that was started again has not done all of the work.
	if m, ok := t.(target.Meter); ok && k.Name != report.Recovery && k.Name != report.Failover {
		if u, err := m.Usage(); err == nil {
			res.Usage = &u
		}
	}
	c, ok := t.(target.Checker)
	if !ok || k.Group {
		return nil
	}
	err := c.Check(ctx)
	if _, wrong := errors.AsType[*target.AnswerError](err); wrong {
		res.AddErrors(map[string]uint64{target.ReasonOf(err): 1}, err)
		return nil
	}
	return err
}

func (o *Options) newLoop(w *report.Workload) *load.Loop {
	return &load.Loop{WarmUp: o.WarmUp, Duration: o.Duration, Calls: o.Calls, Rate: w.Rate, Grace: o.Grace}
}

// measure a workload that is open.
func (o *Options) measure(ctx context.Context, b *bed, w *work) (*report.Result, error) {
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
func (o *Options) drive(ctx context.Context, b *bed, w *work, l *load.Loop) (*report.Result, error) {
	unwatch, finish := o.watch(b, l), func() {}
	if w.beside != nil {
		finish = w.beside.run(ctx, l)
	}
	t, err := l.Run(ctx, w.lanes)
	finish()
	unwatch()
	if err != nil {
		return nil, err
	}
	res := t.Result(&b.w, w.requestBytes, l.Acknowledged.Load())
	if w.beside != nil {
		res.Reads = w.beside.results()
	}
	return res, nil
}

// watch calls Progress during a loop until the returned function is called.
func (o *Options) watch(b *bed, l *load.Loop) (stop func()) {
	if o.Progress == nil {
		return func() {}
	}
	done, gone := make(chan struct{}), make(chan struct{})
	p := Progress{System: b.system, Name: b.w.Name, Round: b.round + 1, Rounds: o.Rounds, Total: l.WarmUp + l.Duration, Steps: l.Steps}
	go func() {
		defer close(gone)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for begun := time.Now(); ; {
			select {
			case <-done:
				return
			case now := <-tick.C:
				p.Elapsed, p.Events, p.Step = now.Sub(begun), l.Acknowledged.Load(), int(l.Step.Load())
				o.Progress(p)
			}
		}
	}()
	return func() {
		close(done)
		<-gone
	}
}
