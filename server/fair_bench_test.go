package server_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/servertest"
)

// fairShare is what a modest tenant offers, as a part of what the node takes from one tenant alone.
// With two tenants, half of it is a tenant's share; the rest is what the load costs on the same
// machine.
const fairShare = 0.4

// BenchmarkFairSEC6 measures what a tenant that offers less than its share keeps while another one
// offers ten times as many calls as the node takes (kept, the median of the rounds).
func BenchmarkFairSEC6(b *testing.B) {
	n := servertest.Start(b)
	const round = 4 * time.Second
	var number atomic.Int64
	tenants := map[string]runlogv1.EventServiceClient{} // Each has its own connection.
	for _, name := range []string{"capacity", "modest", "greedy"} {
		tenants[name] = runlogv1.NewEventServiceClient(n.DialWith())
	}
	call := func(ctx context.Context, tenant, run string) bool {
		e := servertest.NewEvent("Noted", servertest.Step(fmt.Sprint(number.Add(1))), servertest.Payload(`{"text":"a payload of a usual size, more or less"}`))
		e.TenantId = tenant
		_, err := tenants[tenant].AppendEvents(ctx, &runlogv1.AppendEventsRequest{RunId: run, Events: []*runlogv1.EventWrite{e}})
		return err == nil
	}
	// closed has callers of a tenant that send their next call after the last answer.
	closed := func(tenant string, callers int, d time.Duration) float64 {
		ctx, cancel := context.WithTimeout(b.Context(), d)
		defer cancel()
		var done sync.WaitGroup
		var count atomic.Int64
		for i := range callers {
			done.Go(func() {
				for ctx.Err() == nil {
					if call(ctx, tenant, fmt.Sprint(tenant, i)) {
						count.Add(1)
					} else {
						time.Sleep(10 * time.Millisecond) // The shortest delay that a client waits.
					}
				}
			})
		}
		done.Wait()
		return float64(count.Load()) / d.Seconds()
	}
	// open has calls that are due at a rate, at most 2,048 under way. Those in excess are lost.
	open := func(tenant string, rate float64, d time.Duration) float64 {
		ctx, cancel := context.WithTimeout(b.Context(), d)
		defer cancel()
		var done sync.WaitGroup
		var count atomic.Int64
		slots, begun := make(chan int, 2048), time.Now()
		for i := range cap(slots) {
			slots <- i
		}
		for sent := 0.0; ctx.Err() == nil; time.Sleep(time.Millisecond) {
			for due := time.Since(begun).Seconds() * rate; sent < due; sent++ {
				select {
				case slot := <-slots:
					done.Go(func() {
						if call(ctx, tenant, fmt.Sprint(tenant, slot)) {
							count.Add(1)
						}
						slots <- slot
					})
				default:
				}
			}
		}
		done.Wait()
		return float64(count.Load()) / d.Seconds()
	}
	var kept []float64
	for b.Loop() {
		capacity := closed("capacity", 64, round)
		alone := open("modest", capacity*fairShare, round)
		var flood float64
		var done sync.WaitGroup
		done.Go(func() { flood = closed("greedy", 640, round) })
		beside := open("modest", capacity*fairShare, round)
		done.Wait()
		b.Logf("one tenant alone %.0f a second; the modest one %.0f alone, %.0f beside %.0f of the greedy one", capacity, alone, beside, flood)
		kept = append(kept, beside/alone)
	}
	slices.Sort(kept)
	b.ReportMetric(kept[len(kept)/2], "kept")
}
