//go:build unix

package procs

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"runlog/client"
	"runlog/client/events"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/await"
)

const (
	deliveredRuns = 8
	// settledWithin is how long an acknowledgement may not be durable (BUS-6).
	settledWithin = time.Second
	// slowAppend is when an append has taken so long that requests to sinks may be late too.
	slowAppend = 150 * time.Millisecond
)

// deliveries are appends to a cluster, and its subscriptions to sinks.
type deliveries struct {
	t       *testing.T
	c       *Cluster
	client  *client.Client
	hook    *sinkProcess
	nats    *sinkProcess
	rng     *rand.Rand
	stop    chan struct{}
	load    sync.WaitGroup
	appends atomic.Int64
	stored  chan struct{} // receives at an append

	mu sync.Mutex
	// excuses are times in which an acknowledgement may not have become durable.
	excuses []excuse
}

type excuse struct{ from, to time.Time }

// excuse remembers a time that ends now.
func (d *deliveries) excuse(from time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.excuses = append(d.excuses, excuse{from, time.Now()})
}

// TestDeliveries proves BUS-1, BUS-2, BUS-3 and BUS-6 with real processes: sinks that are killed,
// paused and slow, and leaders that are killed while deliveries are under way. In the end each sink
// has every stored event that matches, or the event is parked. The events of a run came first in
// the order of the run, and a webhook got an event again only if its acknowledgement may have been
// lost.
func TestDeliveries(t *testing.T) {
	t.Parallel()
	for seed := range seeds(t) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { deliver(t, seed) })
	}
}

func deliver(t *testing.T, seed uint64) {
	d := &deliveries{t: t, c: newCluster(t, Options{Seed: seed}), rng: rand.New(rand.NewPCG(seed, 9)), stop: make(chan struct{}), stored: make(chan struct{}, 1)}
	d.hook, d.nats = newSink(t, asHook), newSink(t, asNATS)
	d.nats.stream()
	all, err := d.c.connect("")
	if err != nil {
		t.Fatal(err)
	}
	d.client = all
	t.Cleanup(func() { _ = all.Close() })
	d.subscribe("hook", &runlogv1.Delivery{To: &runlogv1.Delivery_Webhook{Webhook: &runlogv1.WebhookDelivery{
		Url: "http://" + d.hook.address, Timeout: durationpb.New(hookTimeout), AllowPrivate: true,
	}}})
	d.subscribe("nats", &runlogv1.Delivery{To: &runlogv1.Delivery_Nats{Nats: &runlogv1.NatsDelivery{
		Url: "nats://" + d.nats.address, Subject: "runlog.{tenant}.{type}.{run}", Stream: natsStream,
	}}})
	for i := range deliveredRuns {
		source := rand.New(rand.NewPCG(seed, uint64(100+i)))
		d.load.Go(func() { d.append(i, source) })
	}
	d.more(20)
	faults := []func(){d.killHook, d.pauseHook, d.killNATS, d.pauseNATS, d.killLeader, d.killLeaderAndHook}
	n := max(*faultsFlag, len(faults))
	for i := range n {
		if i%len(faults) == 0 {
			d.rng.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
		}
		faults[i%len(faults)]()
		d.more(10)
	}
	close(d.stop)
	d.load.Wait()
	d.c.Ready()
	d.drained("hook")
	d.drained("nats")
	d.check()
}

// runName is the id of a run. The last one is of a tenant that no subscription has.
func runName(i int) (id, tenant string) {
	if i == deliveredRuns-1 {
		return fmt.Sprint("foreign-", i), "beta"
	}
	return fmt.Sprint("delivered-", i), "acme"
}

func (d *deliveries) subscribe(id string, to *runlogv1.Delivery) {
	d.t.Helper()
	_, err := d.client.CreateSubscription(d.c.ctx, &runlogv1.CreateSubscriptionRequest{
		SubscriptionId: id, Filter: &runlogv1.SubscriptionFilter{TenantId: "acme", Types: []string{"StepStarted"}},
		Start: &runlogv1.StartFrom{From: &runlogv1.StartFrom_Beginning{Beginning: true}}, Delivery: to,
		Retry: &runlogv1.Retry{Initial: durationpb.New(10 * time.Millisecond), Max: durationpb.New(200 * time.Millisecond), MaxAttempts: 1000},
	})
	if err != nil {
		d.t.Fatal(err)
	}
}

// append appends to a run until the test stops it. Of its events, half match the subscriptions.
func (d *deliveries) append(i int, rng *rand.Rand) {
	id, tenant := runName(i)
	run := events.Run{ID: id, Tenant: tenant, Project: "web", Environment: "prod", Plan: "build", PlanVersion: "1"}
	answers := map[int]string{0: answerLate}
	for i := range 3 { // Those that are late cost a run much time.
		answers[1+i], answers[4+i], answers[7+i] = answerLarge, answerError, answerBusy
	}
	for n := 0; ; n++ {
		select {
		case <-d.stop:
			return
		case <-time.After(time.Duration(rng.IntN(30)) * time.Millisecond):
		}
		how := answers[rng.IntN(300)]
		if how == "" {
			how = answerOK
		}
		payload := map[string]string{"answer": how}
		if how == answerLarge {
			payload["more"] = strings.Repeat("x", natsLargest)
		}
		attempt := events.Attempt{Logical: 1, Engine: 1}
		began, err := run.StepStarted(fmt.Sprint("step-", n), attempt, payload)
		if err != nil {
			d.t.Error(err)
			return
		}
		ended, _ := run.StepCompleted(fmt.Sprint("step-", n), attempt, payload)
		if !d.store(id, began, ended) {
			return
		}
		d.appends.Add(1)
		select {
		case d.stored <- struct{}{}:
		default:
		}
	}
}

// store appends events. An unknown outcome is tried again until it is known.
func (d *deliveries) store(run string, list ...*runlogv1.EventWrite) bool {
	ctx := d.c.ctx
	for {
		began := time.Now()
		_, err := d.client.AppendEvents(ctx, &runlogv1.AppendEventsRequest{RunId: run, Events: list})
		if err == nil && time.Since(began) < slowAppend {
			return true
		}
		d.excuse(began.Add(-settledWithin))
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			d.t.Errorf("append to %s: %v", run, err)
			return false
		}
	}
}

// more waits until n more appends have been acknowledged, and n more requests to the webhook.
func (d *deliveries) more(n int) {
	d.t.Helper()
	d.moreAppends(n)
	before := len(d.hook.answers())
	await.Poll(d.t, "requests to the webhook", func() bool { return len(d.hook.answers()) >= before+n })
}

func (d *deliveries) moreAppends(n int) {
	d.t.Helper()
	before := d.appends.Load()
	for d.appends.Load() < before+int64(n) {
		await.Receive(d.t, "appends", d.stored)
	}
}

func (d *deliveries) killHook() {
	from := time.Now()
	d.hook.life.kill()
	d.moreAppends(20) // They do not wait for the sink (BUS-9).
	d.hook.start()
	d.excuse(from)
}

func (d *deliveries) pauseHook() {
	from := time.Now()
	d.hook.pause(hookLate)
	d.excuse(from)
}

func (d *deliveries) killNATS() {
	d.nats.life.kill()
	d.moreAppends(20)
	d.nats.start()
}

func (d *deliveries) pauseNATS() { d.nats.pause(hookTimeout / 2) }

// killLeader kills the leader after a time without faults, behind which nothing is excused.
func (d *deliveries) killLeader() {
	Pass(2 * settledWithin)
	leader := d.c.Leader()
	from := time.Now()
	leader.Kill()
	d.excuse(from.Add(-settledWithin))
	d.c.Leader(leader)
	d.more(10)
	leader.Start()
	leader.Ready()
}

func (d *deliveries) killLeaderAndHook() {
	leader := d.c.Leader()
	from := time.Now()
	leader.Kill()
	d.hook.life.kill()
	d.c.Leader(leader)
	d.hook.start()
	d.excuse(from.Add(-settledWithin))
	leader.Start()
	leader.Ready()
}

// drained waits until a subscription has nothing left to deliver, and its dead letters are durable.
func (d *deliveries) drained(id string) {
	d.t.Helper()
	await.Poll(d.t, "the end of what is due to "+id, func() bool {
		resp, err := d.client.GetSubscription(d.c.ctx, &runlogv1.GetSubscriptionRequest{TenantId: "acme", SubscriptionId: id})
		s := resp.GetSubscription()
		l := s.GetLag()
		return err == nil && l != nil && l.GetEvents() == 0 && l.GetInFlight() == 0 && len(d.parked(id)) == int(s.GetDeadLetters())
	})
}

// parked returns the dead letters of a subscription.
func (d *deliveries) parked(id string) map[place]bool {
	d.t.Helper()
	all := map[place]bool{}
	for req := (&runlogv1.ListDeadLettersRequest{TenantId: "acme", SubscriptionId: id}); ; {
		resp, err := d.client.ListDeadLetters(d.c.ctx, req)
		if err != nil {
			d.t.Fatal(err)
		}
		for _, l := range resp.GetDeadLetters() {
			all[place{l.GetRunId(), l.GetRunSeq()}] = true
		}
		if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
			return all
		}
	}
}

// due returns the stored events that match, by run, and which of them the sinks do not take.
func (d *deliveries) due() (runs map[string][]uint64, large map[place]bool) {
	d.t.Helper()
	runs, large = map[string][]uint64{}, map[place]bool{}
	for i := range deliveredRuns {
		id, tenant := runName(i)
		for _, e := range d.c.log(id) {
			if tenant != "acme" || e.GetEventType() != "StepStarted" {
				continue
			}
			runs[id] = append(runs[id], e.GetRunSeq())
			if strings.Contains(string(e.GetPayloadJson()), `"`+answerLarge+`"`) {
				large[place{id, e.GetRunSeq()}] = true
			}
		}
	}
	return runs, large
}

// check checks what the sinks have.
func (d *deliveries) check() {
	d.t.Helper()
	runs, large := d.due()
	var got []place
	answers := d.hook.answers()
	for _, a := range answers {
		if a.settles() {
			got = append(got, place{a.run, a.seq})
		}
	}
	firsts := d.checkOrder("hook", runs, got)
	messages := d.nats.messages()
	stored := d.checkOrder("nats", runs, messages)
	if len(messages) != len(stored) {
		d.t.Errorf("the stream has %d messages of %d events: a message id came twice", len(messages), len(stored))
	}
	for id, has := range map[string]map[place]bool{"hook": firsts, "nats": stored} {
		letters := d.parked(id)
		if !maps.Equal(letters, large) {
			d.t.Errorf("%s has parked %v, want %v", id, letters, large)
		}
		d.checkAll(id, runs, has, letters)
	}
	repeats := d.checkRepeats(answers)
	d.t.Logf("%d appends; %d requests to the webhook for %d events, %d repeated after a success; %d messages in the stream; %d parked",
		d.appends.Load(), len(answers), len(firsts), repeats, len(messages), len(large))
	if len(firsts) < 100 || len(messages) < 100 {
		d.t.Error("the test proved little")
	}
}

// checkAll checks BUS-1 and BUS-6: nothing is missing.
func (d *deliveries) checkAll(id string, runs map[string][]uint64, has, letters map[place]bool) {
	d.t.Helper()
	for run, list := range runs {
		for _, seq := range list {
			if p := (place{run, seq}); !has[p] && !letters[p] {
				d.t.Errorf("BUS-1: %s has not %v, and it is not parked", id, p)
			}
		}
	}
}

// checkOrder checks BUS-3: an event comes first when the earlier ones of its run are taken or
// refused forever. The stream lacks the latter. It returns what has come.
func (d *deliveries) checkOrder(id string, runs map[string][]uint64, got []place) map[place]bool {
	d.t.Helper()
	has, last := map[place]bool{}, map[string]uint64{}
	for _, p := range got {
		if has[p] {
			continue
		}
		if _, due := slices.BinarySearch(runs[p.run], p.seq); !due {
			d.t.Errorf("BUS-2: %s has %v, which does not match", id, p)
		}
		if p.seq < last[p.run] {
			d.t.Errorf("BUS-3: %s got %v for the first time behind %d", id, p, last[p.run])
		}
		has[p], last[p.run] = true, p.seq
	}
	return has
}

// checkRepeats checks BUS-6: an event that was taken, or refused forever, comes again only if the
// answer may have been lost, or what was recorded of it. It returns how many came again.
func (d *deliveries) checkRepeats(answers []answered) (repeats int) {
	d.t.Helper()
	taken := map[place]answered{}
	slices.SortFunc(answers, func(a, b answered) int { return a.began.Compare(b.began) })
	for _, a := range answers {
		p := place{a.run, a.seq}
		if before, again := taken[p]; again {
			repeats++
			if !d.excused(before) {
				d.t.Errorf("BUS-6: %v was taken from %v to %v, and came again at %v", p, before.began, before.ended, a.began)
			}
		}
		if a.settles() {
			taken[p] = a
		}
	}
	return repeats
}

// settles reports whether the event need not come again.
func (a *answered) settles() bool {
	return a.code == http.StatusOK || a.code == http.StatusRequestEntityTooLarge
}

// excused reports whether an answer may have come to nothing.
func (d *deliveries) excused(a answered) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a.ended.Sub(a.began) > hookTimeout/2 {
		return true
	}
	const slack = hookTimeout / 2 // Sockets have requests and answers meanwhile.
	return slices.ContainsFunc(d.excuses, func(x excuse) bool {
		return x.from.Before(a.ended.Add(slack)) && a.began.Before(x.to.Add(slack))
	})
}
