package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"runlog/bench/load"
	"runlog/bench/report"
	"runlog/bench/target"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	runlogv1 "runlog/proto/runlog/v1"
)

const (
	// auditWindow is about how many events the window has that is asked for.
	auditWindow = 1_000_000
	// auditPages are asked for, the first of the window each time.
	auditPages = 50
	// auditRunEvents has the run that is verified, and auditVerifies is how often it is.
	auditRunEvents = 100_000
	auditVerifies  = 5
	// auditTurns is the number of turns of appends, alone and during an export.
	auditTurns = 3
)

// openAudit prepares audit: appends at a fixed rate, concurrent with the auditor's requests.
func openAudit(b *bed) (*work, error) {
	auditor, ok := b.target.(target.Auditor)
	if !ok {
		return nil, errNoAudit
	}
	w, err := openHistories(b)
	if err == nil {
		w.measure = func(ctx context.Context, o *Options, b *bed, w *work) (*report.Result, error) {
			x := &auditing{o: o, b: b, w: w, auditor: auditor, result: &report.AuditResult{}}
			return x.measure(ctx)
		}
	}
	return w, err
}

type auditing struct {
	o        *Options
	b        *bed
	w        *work
	auditor  target.Auditor
	result   *report.AuditResult
	from, to *timestamppb.Timestamp // the window
}

func (x *auditing) measure(ctx context.Context) (*report.Result, error) {
	for _, step := range []func(context.Context) error{x.findWindow, x.pages, x.export, x.verify} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	res, err := x.besides(ctx)
	if err != nil {
		return nil, err
	}
	res.Audit = x.result
	return res, nil
}

// findWindow finds a window in the middle of the stored events, from proposal to proposal. Events
// of earlier measurements on the store come after it.
func (x *auditing) findWindow(ctx context.Context) error {
	var stamps []time.Time
	at := timestamppb.New(time.Unix(0, 0))
	whole := time.Now()
	for len(stamps) < x.b.w.Stored/load.FillProposal {
		page, err := x.auditor.QueryEvents(ctx, &runlogv1.QueryEventsRequest{From: at, To: timestamppb.New(whole), PageSize: 1})
		if err != nil {
			return err
		}
		if len(page.Events) == 0 {
			break
		}
		stamps = append(stamps, page.Events[0].PersistedAt.AsTime())
		at = timestamppb.New(stamps[len(stamps)-1].Add(1))
		if !at.AsTime().Before(whole) {
			break
		}
	}
	span := min(auditWindow/load.FillProposal, len(stamps)/2)
	if span == 0 {
		return errors.New("bench: too few events for a window")
	}
	first := (len(stamps) - span - 1) / 2
	x.from, x.to = timestamppb.New(stamps[first]), timestamppb.New(stamps[first+span])
	x.result.Stored = uint64(x.b.w.Stored)
	return nil
}

func (x *auditing) pages(ctx context.Context) error {
	var latency report.Histogram
	for range auditPages {
		begun := time.Now()
		page, err := x.auditor.QueryEvents(ctx, &runlogv1.QueryEventsRequest{From: x.from, To: x.to})
		if err != nil {
			return err
		}
		if len(page.Events) == 0 || !page.Closed {
			return target.WrongAnswer("WINDOW", "the first page has %d events, closed %v", len(page.Events), page.Closed)
		}
		latency.Record(time.Since(begun))
	}
	x.result.FirstPage = report.LatencyOf(&latency)
	return nil
}

// window is the request for it.
func (x *auditing) window(tenant string) *runlogv1.ExportEventsRequest {
	return &runlogv1.ExportEventsRequest{From: x.from, To: x.to, TenantId: tenant}
}

// export exports the window, and the small tenant's part of it.
func (x *auditing) export(ctx context.Context) error {
	peak := func() uint64 {
		if m, ok := x.b.target.(target.Meter); ok {
			if u, err := m.Usage(); err == nil {
				return u.PeakBytes
			}
		}
		return 0
	}
	before := peak()
	var seconds, shares []float64
	for range auditTurns {
		events, taken, err := x.exportOnce(ctx, "")
		if err != nil {
			return err
		}
		small, part, err := x.exportOnce(ctx, load.SmallTenant)
		if err != nil {
			return err
		}
		x.result.Window, x.result.TenantEvents = events, report.Quotient(float64(small), float64(events))
		seconds, shares = append(seconds, taken), append(shares, part/taken)
	}
	x.result.Exported = float64(x.result.Window) / report.Median(seconds)
	x.result.TenantTime = report.Median(shares)
	x.result.GrownBytes = peak() - before
	return nil
}

func (x *auditing) exportOnce(ctx context.Context, tenant string) (events uint64, seconds float64, err error) {
	begun := time.Now()
	summary, err := x.auditor.ExportEvents(ctx, x.window(tenant), func(m *runlogv1.ExportEventsResponse) { events += uint64(len(m.Events)) })
	if err == nil && (summary.Count != events || !summary.Closed) {
		err = target.WrongAnswer("WINDOW", "an export had %d events, says %d, closed %v", events, summary.Count, summary.Closed)
	}
	return events, time.Since(begun).Seconds(), err
}

// verify appends one long run and has it verified.
func (x *auditing) verify(ctx context.Context) error {
	source := load.NewHotRun(x.b.session, report.MaxBatch, 1_000_000, 1)
	l := &load.Loop{Calls: auditRunEvents / report.MaxBatch, Duration: maxFilling, Grace: x.o.Grace}
	begin := &work{lanes: []load.Lane{load.AppendFrom(x.b.target, source).Lane()}}
	res, err := x.o.drive(ctx, x.b, begin, l)
	if err == nil {
		err = res.Failure
	}
	if err != nil {
		return err
	}
	var rates []float64
	for range auditVerifies {
		begun := time.Now()
		v, err := x.auditor.VerifyRun(ctx, load.HotRunID(x.b.session))
		if err != nil {
			return err
		}
		if !v.Ok || v.Verified < auditRunEvents {
			return target.WrongAnswer("VERIFY", "run of %d events, %d verified: %s", auditRunEvents, v.Verified, v.Problem)
		}
		rates = append(rates, float64(v.Verified)/time.Since(begun).Seconds())
	}
	x.result.Verified = report.Median(rates)
	return nil
}

// besides appends, alone and during exports, in turns. The result is that of the last turn.
func (x *auditing) besides(ctx context.Context) (res *report.Result, err error) {
	if err := x.w.warm(ctx, x.o.newLoop(&x.b.w)); err != nil {
		return nil, err
	}
	var quotients []float64
	for range auditTurns {
		alone, err := x.o.drive(ctx, x.b, x.w, x.o.newLoop(&x.b.w))
		if err != nil {
			return nil, err
		}
		beside, exported, err := x.beside(ctx)
		if err != nil {
			return nil, err
		}
		x.result.Turns = append(x.result.Turns, report.AuditTurn{
			AloneMs: report.Milliseconds(alone.Latency.P99), BesideMs: report.Milliseconds(beside.Latency.P99), Exported: exported,
		})
		quotients = append(quotients, report.Quotient(float64(beside.Latency.P99), float64(alone.Latency.P99)))
		beside.AddErrors(alone.Errors, alone.Failure)
		beside.Acknowledged += alone.Acknowledged
		if res != nil {
			beside.AddErrors(res.Errors, res.Failure)
			beside.Acknowledged += res.Acknowledged
		}
		res = beside
	}
	x.result.Slowdown = report.Median(quotients)
	return res, nil
}

// beside appends while it exports the window repeatedly.
func (x *auditing) beside(ctx context.Context) (*report.Result, float64, error) {
	exporting, stop := context.WithCancel(ctx)
	type end struct {
		bytes uint64
		err   error
	}
	ended := make(chan end, 1)
	begun := time.Now()
	go func() {
		var all end
		for all.err == nil && exporting.Err() == nil {
			var n uint64
			n, all.err = x.auditor.DrainExport(exporting, x.window(""))
			all.bytes += n
		}
		ended <- all
	}()
	res, err := x.o.drive(ctx, x.b, x.w, x.o.newLoop(&x.b.w))
	stop()
	all := <-ended
	if err == nil && all.err != nil && status.Code(all.err) != codes.Canceled {
		err = fmt.Errorf("bench: export: %w", all.err)
	}
	return res, float64(all.bytes) / time.Since(begun).Seconds() / (1 << 20), err
}
