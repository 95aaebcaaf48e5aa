package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"runlog/bench/benchtest"
	"runlog/bench/load"
	"runlog/bench/report"
	"runlog/bench/target"
)

// operated serves a store over gRPC, and asks its operator in memory.
func operated(t *testing.T, f *benchtest.Store, connections int) target.System {
	s := overGRPC(t, f, connections)
	open := s.Open
	s.Open = func(ctx context.Context, dir string) (target.Target, error) {
		opened, err := open(ctx, dir)
		if err != nil {
			return nil, err
		}
		return remoteNode{opened.(*target.Remote), fakeNode{f}}, nil
	}
	return s
}

// last runs a workload and returns its result.
func last(t *testing.T, o Options) *report.Result {
	t.Helper()
	rep, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return &rep.Results[len(rep.Results)-1]
}

func TestSnapshots(t *testing.T) {
	for _, open := range []func(*benchtest.Store) target.System{inMemory, func(f *benchtest.Store) target.System { return overGRPC(t, f, 2) }} {
		fake := benchtest.NewStore()
		rep, err := Run(t.Context(), brief(t, open(fake), "snapshot:callers=4:runs=3"))
		if err != nil {
			t.Fatal(err)
		}
		n := len(rep.Results)
		r, echo := rep.Results[n-1], rep.Results[n-2]
		if echo.Name != report.GRPCSnapshot || !echo.Limit || echo.Callers != 4 || echo.Calls == 0 || r.Calls == 0 || len(r.Errors) > 0 || fake.Stored.Load() != 3*(2*snapshotSteps+1) {
			t.Errorf("%+v, %+v, %d stored", echo, r, fake.Stored.Load())
		}
		if q := r.Ratios; q.EchoCalls != r.CallsPerSecond/echo.CallsPerSecond || q.EchoEvents != 0 || q.FsyncP50 != 0 {
			t.Errorf("%+v", q)
		}
		fake.Stale = true
		if r := last(t, brief(t, open(fake), "snapshot:callers=4:runs=3")); r.Errors["STALE_READ"] == 0 {
			t.Errorf("a stale snapshot is not found: %+v", r)
		}
	}
}

func TestWatch(t *testing.T) {
	for name, open := range map[string]func(*benchtest.Store) target.System{
		"memory": inMemory, "one connection": func(f *benchtest.Store) target.System { return operated(t, f, 1) }, "three": func(f *benchtest.Store) target.System { return operated(t, f, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			fake := benchtest.NewStore()
			o := brief(t, open(fake), "watch:callers=3:runs=8:watchers=20")
			rep, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			r := &rep.Results[len(rep.Results)-1]
			w := r.Watch
			if len(r.Errors) > 0 || w.Behind > 0 || w.Watchers != 20 || len(w.Turns) != watchTurns || w.Kept <= 0 || r.Acknowledged != fake.Stored.Load() {
				t.Errorf("%+v, %+v, %d stored", r, w, fake.Stored.Load())
			}
			// Each run has two watchers or three.
			if events := 60 * uint64(watchTurns); w.Delivered < 2*events || w.Delivered > 3*events || w.Watermarks == 0 || w.Delivery.P50 <= 0 || w.Delivery.Max < w.Delivery.P999 {
				t.Errorf("%+v", w)
			}
			if at := slices.IndexFunc(rep.Results, func(r report.Result) bool { return r.Name == report.GRPCIdle }); at < 0 || rep.Results[at].Memory.Streams != 20 {
				t.Errorf("no limit for the memory: %+v", rep.Results)
			}
			if r.Memory == nil || r.Memory.Streams != 20 {
				t.Errorf("%+v", r.Memory)
			}
			tables := rep.Tables()
			rows := map[string]int{}
			for _, table := range tables {
				rows[table.Heads[0]] = len(table.Rows)
			}
			if rows["WATCH"] != 1+watchTurns || rows["MEMORY OF AN IDLE STREAM"] != 2 {
				t.Errorf("%v", rows)
			}
		})
	}
}

// TestDeafWatchers: watchers that do not hear of everything are counted.
func TestDeafWatchers(t *testing.T) {
	fake := benchtest.NewStore()
	fake.Deaf = true
	o := brief(t, inMemory(fake), "watch:callers=1:runs=1:watchers=3")
	o.Grace = 500 * time.Millisecond // enough to open the streams on a busy machine
	if r := last(t, o); r.Errors["WATCHER_BEHIND"] == 0 || r.Watch.Behind == 0 || r.Watch.Behind > 6 || r.Watch.Delivered > 0 {
		t.Errorf("%+v, %+v", r.Errors, r.Watch)
	}
	x := &watching{watchers: []watcher{{run: &load.WatchedRun{}}}, result: &report.WatchResult{}, o: &o}
	x.told(0, target.Mark{Seq: 3})
	x.told(0, target.Mark{Seq: 2})
	res := &report.Result{}
	if x.check(t.Context(), &fakeWatches{}, res); res.Errors["WATERMARK_WENT_BACK"] != 1 {
		t.Errorf("%v", res.Errors)
	}
}

// TestDelivery: an event that a watcher was not told of by itself is heard of with a later one.
func TestDelivery(t *testing.T) {
	run := &load.WatchedRun{}
	x := &watching{watchers: []watcher{{run: run}}, result: &report.WatchResult{}}
	x.from.Store(1000)
	x.to.Store(2000)
	at := func(nanos int64) time.Time { return time.Unix(0, nanos) }
	for seq, persisted := range []int64{900, 990, 1000, 1100, 1500} {
		run.Acknowledge(uint64(seq+1), persisted)
	}
	x.told(0, target.Mark{Seq: 1, PersistedAt: 900, At: at(1200)})
	x.told(0, target.Mark{Seq: 4, PersistedAt: 1100, At: at(1200)}) // and 2, too old, and 3
	x.told(0, target.Mark{Seq: 4, PersistedAt: 1100, At: at(1300)})
	x.told(0, target.Mark{Seq: 6, PersistedAt: 1600, At: at(1700)}) // not acknowledged yet, and 5
	x.told(0, target.Mark{Seq: 7, PersistedAt: 2000, At: at(2100)}) // too late
	if n, longest := x.delivery.Count(), x.delivery.Max(); n != 4 || longest != 200 || x.watermarks.Load() != 3 {
		t.Errorf("%d deliveries, the longest took %v; %d watermarks", n, longest, x.watermarks.Load())
	}
}

func TestWatchNeedsWatches(t *testing.T) {
	for _, workload := range []string{"watch:callers=1:runs=1:watchers=1", "lag:callers=1", "rebuild:callers=1:stored=1", "snapshot:callers=1"} {
		o := brief(t, target.System{Name: "x", Open: func(context.Context, string) (target.Target, error) {
			return writeOnly{fakeNode{benchtest.NewStore()}}, nil
		}}, workload)
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "it has no ") {
			t.Errorf("%s: %v", workload, err)
		}
	}
}

func TestLag(t *testing.T) {
	fake := benchtest.NewStore()
	r := last(t, brief(t, inMemory(fake), "lag:callers=3"))
	l := r.Lag
	if l == nil || len(r.Errors) > 0 || l.Events < 60 || l.P50 != time.Millisecond || l.P999 != time.Millisecond || l.Rate != l.HighestRate/2 || l.Rate <= 0 {
		t.Errorf("%+v, %+v", r, l)
	}
	if r.Acknowledged != fake.Stored.Load() {
		t.Errorf("acknowledged %d events, the target has %d", r.Acknowledged, fake.Stored.Load())
	}
	series := func(bound string) string { return fmt.Sprintf(`%s_bucket{le="%s"}`, target.MetricLag, bound) }
	l = target.LagBetween(target.Metrics{series("0.1"): 5, series("0.2"): 5, series("+Inf"): 5, target.MetricLag + "_count": 5},
		target.Metrics{series("0.1"): 995, series("0.2"): 1003, series("+Inf"): 1005, target.MetricLag + "_count": 1005})
	if l.Events != 1000 || l.P50 != 100*time.Millisecond || l.P99 != 100*time.Millisecond || l.P999 < time.Hour {
		t.Errorf("%+v", l)
	}
}

func TestRebuild(t *testing.T) {
	fake := benchtest.NewStore()
	r := last(t, brief(t, inMemory(fake), "rebuild:callers=3:batch=10:stored=95"))
	if b := r.Rebuild; b == nil || b.Events != 100 || b.Runs != 10 || b.EventsPerSecond <= 0 || b.FoldSeconds > b.Seconds || len(r.Errors) > 0 {
		t.Errorf("%+v, %+v", r, b)
	}
	fake.Differing = 2
	if r := last(t, brief(t, inMemory(fake), "rebuild:callers=3:batch=10:stored=95")); r.Errors["DIFFERING"] != 2 {
		t.Errorf("%+v", r)
	}
}
