package delivery_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"runlog/server/subscriptions/cloudevent"
	"runlog/server/subscriptions/delivery"
	"runlog/server/subscriptions/sink/attempt"
	"runlog/server/subscriptions/window"
	"runlog/storage"
	"runlog/storage/machine/subscription"
)

// sub is a subscription, and what has come of it.
type sub struct {
	b    *bed
	name subscription.Name
	// flaky: the sink fails until all is healthy.
	flaky bool

	mu        sync.Mutex
	settings  subscription.Settings
	began     storage.Position
	moved     time.Time // when began changed
	filters   []filter
	got       map[window.Place]*fate
	repeats   int         // events that were acknowledged again
	shocks    []time.Time // when it was changed
	answer    func(storage.Record) error
	consumers sync.WaitGroup
}

// filter is one that a subscription had from a position on.
type filter struct {
	types []string
	from  storage.Position
}

func (f *filter) takes(eventType string) bool {
	return len(f.types) == 0 || slices.Contains(f.types, eventType)
}

// fate is what has become of an event.
type fate struct {
	acked  time.Time // the last time
	again  bool      // it was sent since then
	sent   time.Time // the first time since then
	letter bool      // it was a dead letter, and perhaps due too, since a seek
	since  bool      // it was acknowledged since the last seek
	failed int
	final  bool // it may be a dead letter, or was discarded
}

func (s *sub) shock() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shocks = append(s.shocks, time.Now())
}

// required reports whether an event must be delivered: it matches all filters that there were since
// it was stored. s.mu is held.
func (s *sub) required(p window.Place) bool {
	n := s.b.node
	n.mu.Lock()
	defer n.mu.Unlock()
	eventType, at := n.events[p.RunID][p.Seq-1], n.at[p.RunID][p.Seq-1]
	tenant, _, _ := strings.Cut(p.RunID, "_")
	if at <= s.began || s.name.Tenant != "" && s.name.Tenant != tenant {
		return false
	}
	for i := range s.filters {
		over := i+1 < len(s.filters) && s.filters[i+1].from < at
		if !over && !s.filters[i].takes(eventType) {
			return false
		}
	}
	return true
}

func (s *sub) fate(p window.Place) *fate {
	f := s.got[p]
	if f == nil {
		f = &fate{}
		s.got[p] = f
	}
	return f
}

// receive notes an event that is delivered, and checks that it may come.
func (s *sub) receive(r *storage.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := window.Place{RunID: r.RunID, Seq: r.RunSeq}
	if tenant, _, _ := strings.Cut(p.RunID, "_"); s.name.Tenant != "" && s.name.Tenant != tenant {
		s.b.t.Errorf("%v has %v", s.name, p)
	}
	f := s.fate(p)
	for seq := max(p.Seq, 30) - 29; seq < p.Seq && s.moved.Before(time.Now()) && !f.letter; seq++ {
		before := window.Place{RunID: p.RunID, Seq: seq}
		if f := s.fate(before); s.required(before) && f.acked.IsZero() && !f.final {
			s.b.t.Errorf("BUS-3: %v has %v before %v", s.name, p, before)
		}
	}
	if !f.acked.IsZero() && !f.again && !f.letter && !s.b.lossy && !s.shocked(f) {
		s.b.t.Errorf("BUS-6: %v has %v again at %v, acknowledged at %v", s.name, p, s.b.time(time.Now()), s.b.time(f.acked))
	}
	if !f.again {
		f.sent, f.again = time.Now(), true
	}
}

// shocked reports whether something has happened shortly after an acknowledgement, or while the
// event was under way.
func (s *sub) shocked(f *fate) bool {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	return slices.ContainsFunc(append(slices.Clone(s.shocks), s.b.shocks...), func(at time.Time) bool {
		return !at.Before(f.sent) && at.Before(f.acked.Add(time.Second))
	})
}

// done notes how an attempt has ended.
func (s *sub) done(p window.Place, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.fate(p)
	if err == nil {
		s.acked(f)
		return
	}
	if errors.Is(err, attempt.ErrClosed) {
		return
	}
	_, permanent := errors.AsType[*attempt.PermanentError](err)
	f.failed++
	f.final = f.final || permanent || f.failed >= int(s.settings.MaxAttempts)
}

var errRefused = errors.New("refused")

// sink takes the events of a subscription.
type sink struct {
	s *sub
	*attempt.Group
}

func (b *bed) openSink(tenant string, how []byte, _ int) (delivery.Sink, error) {
	if b.sink != nil {
		return b.sink(), nil
	}
	if !b.isHealthy() && b.int(10) == 0 && strings.HasPrefix(string(how), "flaky") {
		return nil, errRefused
	}
	id := string(how[strings.IndexByte(string(how), ':')+1:])
	b.mu.Lock()
	defer b.mu.Unlock()
	return &sink{b.subs[subscription.Name{Tenant: tenant, ID: id}.String()], attempt.NewGroup(attempt.Options{
		Timeout: time.Second, Late: func() error { return errors.New("too late") },
	})}, nil
}

func (k *sink) Send(ctx context.Context, e *cloudevent.Event, done func(error)) {
	r := *e.Record
	p := window.Place{RunID: r.RunID, Seq: r.RunSeq}
	k.Go(ctx, func(ctx context.Context) error { return k.s.try(ctx, r) }, func(err error) {
		k.s.done(p, err)
		done(err)
	})
}

func (k *sink) Close() error {
	k.Group.Close()
	return nil
}

// try is one attempt to deliver an event to the sink.
func (s *sub) try(ctx context.Context, r storage.Record) error {
	s.receive(&r)
	if s.answer != nil {
		return s.answer(r)
	}
	if s.b.isHealthy() || !s.flaky {
		return nil
	}
	s.b.sleep(30 * time.Millisecond)
	switch s.b.int(20) {
	case 0, 1, 2, 3:
		return errRefused
	case 4:
		return &attempt.PermanentError{Err: errRefused}
	case 5:
		return &attempt.BusyError{After: time.Duration(s.b.int(int(3 * time.Second))), Err: errRefused}
	case 6:
		<-ctx.Done()
	}
	return nil
}

// consume has a consumer take events until the context ends.
func (s *sub) consume(ctx context.Context) {
	s.consumers.Go(func() {
		for ctx.Err() == nil {
			c, err := s.b.d.Consume(ctx, s.name)
			if err != nil {
				select {
				case <-time.After(100 * time.Millisecond):
				case <-ctx.Done():
				}
				continue
			}
			for err == nil {
				err = s.takeSome(ctx, c)
			}
			if s.b.int(2) == 0 {
				c.Close()
			} else {
				c.Leave()
			}
		}
	})
}

func (s *sub) takeSome(ctx context.Context, c *delivery.Consumer) error {
	list, err := c.Take(ctx, 1+s.b.int(5), nil)
	for i := range list {
		s.receive(list[i].Record)
	}
	for i := range list {
		d := &list[i]
		p := window.Place{RunID: d.Run.RunID, Seq: d.Record.RunSeq}
		s.mu.Lock()
		f := s.fate(p)
		f.final = f.final || d.Attempt >= s.settings.MaxAttempts
		s.mu.Unlock()
		what := 9
		if !s.b.isHealthy() {
			s.b.sleep(50 * time.Millisecond)
			what = s.b.int(20)
		}
		switch what {
		case 0:
			c.Nack(refs([]window.Place{p}), -1)
		case 1:
			c.Nack(refs([]window.Place{p}), time.Duration(s.b.int(int(time.Second))))
		case 2:
			c.Return(refs([]window.Place{p}))
		case 3: // Its deadline passes.
		case 4:
			time.Sleep(pullTimeout + time.Second)
			fallthrough
		default:
			s.ack(c, p)
		}
	}
	return err
}

// refs are deliveries since the last seek.
func refs(list []window.Place) (refs []delivery.Ref) {
	for _, p := range list {
		refs = append(refs, delivery.Ref{Place: p, Sought: math.MaxUint64})
	}
	return refs
}

func (s *sub) ack(c *delivery.Consumer, p window.Place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Ack(refs([]window.Place{p})) == 1 {
		s.acked(s.fate(p))
	}
}

// acked notes an acknowledgement that counts. s.mu is held.
func (s *sub) acked(f *fate) {
	if !f.acked.IsZero() {
		s.repeats++
	}
	f.acked, f.again, f.since = time.Now(), false, true
}
