package queue_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"runlog/proto/contract"
	"runlog/storage/machine/queue"
)

// names are of queues of which one begins as another does.
var names = []queue.Name{
	{Tenant: "a", Project: "p", Environment: "e", Queue: "q"},
	{Tenant: "a", Project: "p", Environment: "e", Queue: "qq"},
	{Tenant: "a", Project: "pp", Environment: "e", Queue: "q"},
	{Tenant: "ab", Project: "p", Environment: "e", Queue: "q"},
}

// drawer draws commands for a bed.
type drawer struct {
	*bed
	t     *rapid.T
	next  int // the number of the next run
	clock int64
	last  queue.Name // of the lease before
}

// run draws a run: most often one that is in a queue.
func (d *drawer) run() string { return runID(rapid.IntRange(0, max(0, d.next)).Draw(d.t, "run")) }

func (d *drawer) name() queue.Name { return rapid.SampledFrom(names).Draw(d.t, "queue") }

// fence draws the fence of a run's last lease, or one that is off by one.
func (d *drawer) fence(id string) uint64 {
	fence := d.model.fences[id]
	if r := d.model.runs[id]; r != nil {
		fence = r.Fence
	}
	return fence + rapid.SampledFrom([]uint64{0, 0, 0, 0, 0, 1, ^uint64(0)}).Draw(d.t, "off")
}

// holder draws a run: one that is leased, if there is one.
func (d *drawer) holder() string {
	var held []string
	for n := range d.next + 1 {
		if r := d.model.runs[runID(n)]; r != nil && r.ExpiresAt != 0 {
			held = append(held, r.RunID)
		}
	}
	if len(held) == 0 || rapid.IntRange(0, 5).Draw(d.t, "any") == 0 {
		return d.run()
	}
	return rapid.SampledFrom(held).Draw(d.t, "held")
}

func (d *drawer) request() command {
	r := queue.RunRequest{
		Key: keyOf(d.next), Name: queueOf(runID(d.next)), RunID: runID(d.next), PlanDigest: []byte("digest"),
		Priority: uint32(rapid.SampledFrom([]int{5, 5, 5, 0, 4, 6, 9}).Draw(d.t, "priority")), RunIDNamed: rapid.Bool().Draw(d.t, "named"),
		AnswerBytes: rapid.Uint32Range(0, 3).Draw(d.t, "bytes"),
	}
	if rapid.IntRange(0, 4).Draw(d.t, "later") == 0 {
		r.NotBefore = d.clock + rapid.Int64Range(0, 40).Draw(d.t, "notBefore")
	}
	switch rapid.IntRange(0, 11).Draw(d.t, "again") {
	case 0:
		r.Key = keyOf(rapid.IntRange(0, d.next).Draw(d.t, "key"))
	case 1:
		n := rapid.IntRange(0, d.next).Draw(d.t, "same")
		r.Key, r.RunID, r.Name = keyOf(n), runID(n), queueOf(runID(n))
		r.PlanDigest = []byte(rapid.SampledFrom([]string{"digest", "other"}).Draw(d.t, "digest"))
		return command{d.checked(r)}
	case 2:
		r.RunID = d.run()
		r.Name = queueOf(r.RunID)
		return command{d.bed.request(r)}
	}
	d.next++
	return d.enqueue(r)
}

func (d *drawer) lease() command {
	r := queue.LeaseRequest{
		Worker: rapid.SampledFrom([]string{"x", "y"}).Draw(d.t, "worker"), Max: rapid.SampledFrom([]int{1, 1, 2, 5, 100}).Draw(d.t, "max"),
		TTL: time.Duration(rapid.SampledFrom([]int64{0, 1, 30, 1000}).Draw(d.t, "ttl")), After: d.last,
		Within:   rapid.SampledFrom([]queue.Name{{}, {}, {Tenant: "a"}, {Tenant: "a", Project: "p"}, names[0], names[3]}).Draw(d.t, "within"),
		MaxBytes: rapid.SampledFrom([]uint32{0, 0, 1, 4}).Draw(d.t, "most"),
	}
	if rapid.Bool().Draw(d.t, "after") {
		r.After = d.name()
	}
	d.last = r.After
	return command{d.bed.lease(r)}
}

func (d *drawer) release() command {
	id := d.holder()
	l := queue.LeaseRelease{RunID: id, Fence: d.fence(id), Outcome: rapid.SampledFrom([]queue.Outcome{queue.Started, queue.Started, queue.Failed, queue.Failed, queue.Skipped}).Draw(d.t, "outcome")}
	if l.Outcome == queue.Failed {
		l.RetryAt = d.clock + rapid.Int64Range(-5, 40).Draw(d.t, "retry")
		r := d.model.runs[id]
		l.Exhausted = r != nil && d.model.exhausted(r) != (rapid.IntRange(0, 9).Draw(d.t, "mistaken") == 0)
	}
	c := command{d.bed.release(l)}
	switch {
	case l.Exhausted:
		c = append(c, d.event(id, queueOf(id), contract.RunFailed, 0))
	case l.Outcome == queue.Skipped:
		c = append(c, d.event(id, queueOf(id), contract.RunCancelled, 0))
	}
	return c
}

// queueOf is the queue that a run is requested in, if it is.
func queueOf(id string) queue.Name {
	n := 0
	_, _ = fmt.Sscanf(id, "run-%d", &n)
	return names[n%len(names)]
}

func (d *drawer) settings() command {
	var c queue.Change
	number := func(p **uint64, from ...uint64) {
		if rapid.Bool().Draw(d.t, "changes") {
			n := rapid.SampledFrom(from).Draw(d.t, "number")
			*p = &n
		}
	}
	duration := func(p **time.Duration, from ...time.Duration) {
		if rapid.Bool().Draw(d.t, "changes") {
			n := rapid.SampledFrom(from).Draw(d.t, "duration")
			*p = &n
		}
	}
	number(&c.MaxRunning, 0, 1, 2, 5)
	number(&c.MaxQueued, 0, 1, 4)
	duration(&c.Delay, 0, 20)
	duration(&c.LeaseTTL, 0, 1, 25)
	duration(&c.AgingPeriod, 0, 1, 7, 50)
	duration(&c.DrainTimeout, 0, 3)
	onFull := rapid.SampledFrom([]queue.OnFull{queue.OnFullQueue, queue.OnFullQueue, queue.OnFullReject, queue.OnFullDelay}).Draw(d.t, "onFull")
	attempts := rapid.Uint32Range(0, 3).Draw(d.t, "attempts")
	c.OnFull, c.MaxStartAttempts = &onFull, &attempts
	if rapid.IntRange(0, 5).Draw(d.t, "pauses") == 0 {
		paused := rapid.Bool().Draw(d.t, "paused")
		c.Paused = &paused
	}
	name := d.name()
	return command{d.step(queue.Put(name, c))(func(m *model) error {
		m.put(name, &c)
		return nil
	})}
}

func (d *drawer) command() command {
	id := d.run()
	switch rapid.IntRange(0, 20).Draw(d.t, "what") {
	case 0:
		return d.settings()
	case 1:
		name, paused := d.name(), rapid.IntRange(0, 3).Draw(d.t, "paused") == 0
		return command{d.step(queue.Pause(name, paused))(func(m *model) error { return m.pause(name, paused) })}
	case 2:
		return command{d.tick(rapid.SampledFrom([]int{1, 2, 1000}).Draw(d.t, "timers"))}
	case 3:
		id, fence := d.holder(), uint64(0)
		fence = d.fence(id)
		ttl := time.Duration(rapid.SampledFrom([]int64{0, 1, 30}).Draw(d.t, "ttl"))
		return command{d.answered(queue.Renew(id, fence, ttl))(
			func(m *model) (any, error) { return m.renew(id, fence, ttl) },
			func(reply []byte) (any, error) { return queue.DecodeRenew(reply) })}
	case 4:
		for n := range d.next {
			if r := d.model.runs[runID(n)]; r != nil && r.State == queue.Exhausted {
				id = r.RunID
			}
		}
		fence := d.fence(id)
		if rapid.Bool().Draw(d.t, "retry") {
			return command{d.step(queue.Retry(id, fence))(func(m *model) error { return m.retry(id, fence) })}
		}
		return command{d.step(queue.Expire(id, fence))(func(m *model) error { return m.expire(id, fence) }), d.event(id, queueOf(id), contract.RunFailed, 0)}
	case 5:
		return command{d.step(queue.Cancel(id))(func(m *model) error { return m.cancel(id) }), d.event(id, queueOf(id), contract.RunCancelled, 0)}
	case 6:
		priority := rapid.Uint32Range(0, 9).Draw(d.t, "priority")
		return command{d.step(queue.Reprioritize(id, priority))(func(m *model) error { return m.reprioritize(id, priority) })}
	case 7:
		for n := range d.next {
			if r := d.model.runs[runID(n)]; r != nil && r.State == queue.Running {
				id = r.RunID
			}
		}
		var last *uint64
		if rapid.Bool().Draw(d.t, "conditional") {
			last = pointer(d.model.seqs(id) + rapid.Uint64Range(0, 1).Draw(d.t, "more"))
		}
		return command{d.requeue(id, last)}
	case 8:
		end := rapid.SampledFrom([]string{
			contract.RunStarted, contract.RunCompleted, contract.RunFailed, contract.RunCancelled, contract.RunPaused, contract.RunResumed,
			contract.StepWaitingForAttestation, contract.SignalAccepted,
		}).Draw(d.t, "end")
		which := rapid.IntRange(0, 1).Draw(d.t, "which")
		if _, ok := d.model.fences[id]; !ok {
			end = contract.RunStarted
		} else if rapid.IntRange(0, 2).Draw(d.t, "unsettled") == 0 {
			return command{
				d.event(id, queueOf(id), contract.RunStarted, which), d.event(id, queueOf(id), contract.StepWaitingForAttestation, which),
				d.event(id, queueOf(id), contract.RunCompleted, which),
			}
		}
		return command{d.event(id, queueOf(id), end, which)}
	case 9:
		id := d.holder()
		if _, ok := d.model.fences[id]; !ok {
			return d.lease()
		}
		fence := d.fence(id)
		what := rapid.SampledFrom([]string{contract.RunStarted, contract.RunStarted, contract.RunPaused, contract.RunResumed, contract.RunCompleted, contract.SignalAccepted}).Draw(d.t, "write")
		return command{d.append(id, queueOf(id), what, rapid.IntRange(0, 1).Draw(d.t, "which"), &fence)}
	case 10, 11:
		return d.lease()
	case 12:
		for n := range d.next {
			if r := d.model.runs[runID(n)]; r != nil && r.Unsettled {
				id = r.RunID
			}
		}
		seq := d.model.seqs(id) - min(d.model.seqs(id), rapid.SampledFrom([]uint64{0, 0, 0, 1}).Draw(d.t, "late"))
		return command{d.settle(id, seq, rapid.SampledFrom(d.model.mayBe(id)).Draw(d.t, "status"))}
	case 13, 14, 15:
		return d.release()
	default:
		return d.request()
	}
}

// TestQueueQUE compares queues with a model through refused commands, leaps of the clock and
// restarts: QUE-2 to QUE-9. After each entry it derives every count and every index again. Another
// store with the same log is the same (D11).
func TestQueueQUE(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := &drawer{bed: open(t), t: t}
		for range rapid.IntRange(1, 60).Draw(t, "entries") {
			d.clock += rapid.SampledFrom([]int64{0, 1, 1, 5, 30, 1000, 40e9}).Draw(t, "leap")
			if rapid.IntRange(0, 15).Draw(t, "restart") == 0 {
				if err := d.Reopen(); err != nil {
					t.Fatal(err)
				}
			}
			var commands []command
			for range rapid.SampledFrom([]int{1, 1, 2, 4}).Draw(t, "commands") {
				c := d.command()
				if rapid.IntRange(0, 9).Draw(t, "refused") == 0 {
					c = append(c, d.refusal(d.run()))
				}
				commands = append(commands, c)
			}
			d.do(d.clock, commands...)
			d.clock = d.Applied().PersistedAt
			d.check()
		}
		d.replay()
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestOrderQUE5 leases the runs of one queue in the order of their effective priorities, and of
// equal ones in commit order, through ages, priorities and failed starts that bring equal ones
// about.
func TestOrderQUE5(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := &drawer{bed: open(t), t: t}
		c := queue.Change{AgingPeriod: pointer(time.Duration(rapid.IntRange(1, 8).Draw(t, "period")))}
		d.do(0, command{d.step(queue.Put(names[0], c))(func(m *model) error {
			m.put(names[0], &c)
			return nil
		})})
		for range rapid.IntRange(5, 40).Draw(t, "entries") {
			d.clock += rapid.SampledFrom([]int64{1, 1, 1, 2, 9}).Draw(t, "leap")
			id := d.holder()
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0, 1, 2:
				r := requestOf(d.next)
				r.Priority = rapid.Uint32Range(0, 4).Draw(t, "priority")
				d.next++
				d.do(d.clock, d.enqueue(r))
			case 3:
				d.do(d.clock, command{d.bed.lease(queue.LeaseRequest{Max: rapid.IntRange(1, 3).Draw(t, "max"), TTL: 20})})
			case 4:
				d.do(d.clock, command{d.bed.release(queue.LeaseRelease{RunID: id, Fence: d.model.fences[id], Outcome: queue.Failed})})
			default:
				priority := rapid.Uint32Range(0, 4).Draw(t, "priority")
				d.do(d.clock, command{d.step(queue.Reprioritize(id, priority))(func(m *model) error { return m.reprioritize(id, priority) })})
			}
			d.clock = d.Applied().PersistedAt
			d.check()
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestNoRunStarvesQUE5: a run of priority 0 is leased although runs of priority 9 keep coming.
func TestNoRunStarvesQUE5(t *testing.T) {
	t.Parallel()
	b := requested(t, 0, queue.Change{AgingPeriod: pointer(10 * time.Nanosecond)})
	low := requestOf(0)
	low.Priority = 0
	b.do(0, b.enqueue(low))
	for n := 1; n < 100; n++ {
		r := requestOf(n)
		r.Priority = 9
		b.do(0, b.enqueue(r), b.leaseOne(1000))
		if run, _, err := queue.ReadRun(b.Store, low.RunID); err != nil || run.State == queue.Leased {
			if n < 80 || err != nil {
				t.Fatalf("leased after %d others, %v", n, err)
			}
			b.end()
			return
		}
	}
	t.Fatal("the run starves")
}
