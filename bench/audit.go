package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

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
	// auditTurns appends go alone, and beside an export, by turns.
	auditTurns = 3
	// SmallTenant has one run in a hundred of a store that was filled with payloads.
	SmallTenant = "tenant_bench_small"
)

// AuditResult is what an auditor's questions take.
type AuditResult struct {
	// Stored events, and those of the window in their midst, which all else is about.
	Stored uint64 `json:"stored"`
	Window uint64 `json:"window"`
	// FirstPage of 1,000 events of the window.
	FirstPage Latency `json:"firstPageMs"`
	// Exported events a second, read by a client that does nothing with them.
	Exported float64 `json:"exportedPerSecond"`
	// TenantEvents is the share of the window's events that are SmallTenant's, and TenantTime that
	// of the window's time which the export of these takes.
	TenantEvents float64 `json:"tenantShareOfEvents"`
	TenantTime   float64 `json:"tenantShareOfTime"`
	// GrownBytes is by how much the peak of the node's resident memory rose in the exports.
	GrownBytes uint64 `json:"grownBytes"`
	// Turns of appends, alone and beside exports without end, and the median of the quotients of
	// their p99.
	Turns    []AuditTurn `json:"turns"`
	Slowdown float64     `json:"p99BesideExport"`
	// Verified events a second, of one run.
	Verified float64 `json:"verifiedPerSecond"`
}

// AuditTurn is the p99 of appends in one turn, in milliseconds, and how much was exported beside
// them, in MiB a second.
type AuditTurn struct {
	AloneMs  float64 `json:"aloneMs"`
	BesideMs float64 `json:"besideMs"`
	Exported float64 `json:"exportedMiBPerSecond"`
}

// openAudit prepares audit: appends at a given rate, which everything else is asked beside.
func openAudit(b *bed) (*work, error) {
	auditor, ok := b.target.(Auditor)
	if !ok {
		return nil, errNoAudit
	}
	w, err := openHistories(b)
	if err == nil {
		w.measure = func(ctx context.Context, o *Options, b *bed, w *work) (*Result, error) {
			x := &auditing{o: o, b: b, w: w, auditor: auditor, result: &AuditResult{}}
			return x.measure(ctx)
		}
	}
	return w, err
}

type auditing struct {
	o        *Options
	b        *bed
	w        *work
	auditor  Auditor
	result   *AuditResult
	from, to *timestamppb.Timestamp // the window
}

func (x *auditing) measure(ctx context.Context) (*Result, error) {
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

// findWindow looks for a window in the midst of what is stored, going from proposal to proposal.
// What was appended when the store was used before comes behind.
func (x *auditing) findWindow(ctx context.Context) error {
	var stamps []time.Time
	at := timestamppb.New(time.Unix(0, 0))
	whole := time.Now()
	for len(stamps) < x.b.w.Stored/fillProposal {
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
	span := min(auditWindow/fillProposal, len(stamps)/2)
	if span == 0 {
		return errors.New("bench: the store has too little for a window")
	}
	first := (len(stamps) - span - 1) / 2
	x.from, x.to = timestamppb.New(stamps[first]), timestamppb.New(stamps[first+span])
	x.result.Stored = uint64(x.b.w.Stored)
	return nil
}

func (x *auditing) pages(ctx context.Context) error {
	var latency Histogram
	for range auditPages {
		begun := time.Now()
		page, err := x.auditor.QueryEvents(ctx, &runlogv1.QueryEventsRequest{From: x.from, To: x.to})
		if err != nil {
			return err
		}
		if len(page.Events) == 0 || !page.Closed {
			return wrongAnswer("WINDOW", "the first page has %d events, closed %v", len(page.Events), page.Closed)
		}
		latency.Record(time.Since(begun))
	}
	x.result.FirstPage = latencyOf(&latency)
	return nil
}

// window is the request for it.
func (x *auditing) window(tenant string) *runlogv1.ExportEventsRequest {
	return &runlogv1.ExportEventsRequest{From: x.from, To: x.to, TenantId: tenant}
}

// export exports the window, and the small tenant's part of it.
func (x *auditing) export(ctx context.Context) error {
	peak := func() uint64 {
		if m, ok := x.b.target.(Meter); ok {
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
		small, part, err := x.exportOnce(ctx, SmallTenant)
		if err != nil {
			return err
		}
		x.result.Window, x.result.TenantEvents = events, quotient(float64(small), float64(events))
		seconds, shares = append(seconds, taken), append(shares, part/taken)
	}
	x.result.Exported = float64(x.result.Window) / Median(seconds)
	x.result.TenantTime = Median(shares)
	x.result.GrownBytes = peak() - before
	return nil
}

func (x *auditing) exportOnce(ctx context.Context, tenant string) (events uint64, seconds float64, err error) {
	begun := time.Now()
	summary, err := x.auditor.ExportEvents(ctx, x.window(tenant), func(m *runlogv1.ExportEventsResponse) { events += uint64(len(m.Events)) })
	if err == nil && (summary.Count != events || !summary.Closed) {
		err = wrongAnswer("WINDOW", "an export had %d events, says %d, closed %v", events, summary.Count, summary.Closed)
	}
	return events, time.Since(begun).Seconds(), err
}

// verify appends one long run and has it verified.
func (x *auditing) verify(ctx context.Context) error {
	source := newHotRun(x.b.session, MaxBatch, 1_000_000, 1)
	l := &loop{calls: auditRunEvents / MaxBatch, duration: maxFilling, grace: x.o.Grace}
	begin := &work{lanes: []lane{appendFrom(x.b.target, source).lane()}}
	res, err := x.o.drive(ctx, x.b, begin, l)
	if err == nil {
		err = res.failure
	}
	if err != nil {
		return err
	}
	var rates []float64
	for range auditVerifies {
		begun := time.Now()
		v, err := x.auditor.VerifyRun(ctx, hotRunID(x.b.session))
		if err != nil {
			return err
		}
		if !v.Ok || v.Verified < auditRunEvents {
			return wrongAnswer("VERIFY", "of a run of %d events %d verified: %s", auditRunEvents, v.Verified, v.Problem)
		}
		rates = append(rates, float64(v.Verified)/time.Since(begun).Seconds())
	}
	x.result.Verified = Median(rates)
	return nil
}

// besides appends, alone and beside exports, by turns. The result is that of the last turn.
func (x *auditing) besides(ctx context.Context) (res *Result, err error) {
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
		x.result.Turns = append(x.result.Turns, AuditTurn{
			AloneMs: milliseconds(alone.Latency.P99), BesideMs: milliseconds(beside.Latency.P99), Exported: exported,
		})
		quotients = append(quotients, quotient(float64(beside.Latency.P99), float64(alone.Latency.P99)))
		beside.addErrors(alone.Errors, alone.failure)
		beside.Acknowledged += alone.Acknowledged
		if res != nil {
			beside.addErrors(res.Errors, res.failure)
			beside.Acknowledged += res.Acknowledged
		}
		res = beside
	}
	x.result.Slowdown = Median(quotients)
	return res, nil
}

// beside appends while the window is exported over and over.
func (x *auditing) beside(ctx context.Context) (*Result, float64, error) {
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
