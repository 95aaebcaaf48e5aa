package subscription_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"runlog/storage"
	"runlog/storage/machine/subscription"
)

// names are of subscriptions of which one begins as another does.
var names = []subscription.Name{{ID: "s"}, {ID: "ss"}, {Tenant: "a", ID: "s"}, {Tenant: "a", ID: "ss"}, {Tenant: "ab", ID: "s"}}

// runs are such that one begins as another does.
var runs = []string{"r", "run", "run-1", "run-11"}

// kinds are settings of which any two differ in some fields.
var kinds = []subscription.Settings{
	{Delivery: []byte("pull"), MaxAttempts: 12, MaxInFlight: 64, OnDeadLetter: subscription.Continue},
	{Delivery: []byte("pull"), MaxAttempts: 12, MaxInFlight: 65, OnDeadLetter: subscription.HoldRun},
	{
		ProjectID: "p", EnvironmentID: "e", Types: []string{"RunStarted", "RunFailed"}, PlanID: "plan", Labels: map[string]string{"b": "1", "a": "2"},
		Delivery: []byte("webhook"), RetryInitial: time.Second, RetryMax: time.Minute, MaxAttempts: 3, MaxInFlight: 64, OnDeadLetter: subscription.Continue,
	},
	{
		ProjectID: "p", EnvironmentID: "e", Types: []string{"RunFailed", "RunStarted"}, PlanID: "plan", Labels: map[string]string{"b": "1", "a": "3"},
		Delivery: []byte("webhook"), RetryInitial: time.Second, RetryMax: time.Hour, MaxAttempts: 3, MaxInFlight: 64, OnDeadLetter: subscription.Continue,
	},
}

// drawer draws commands for a bed.
type drawer struct {
	*bed
	t *rapid.T
}

func (d *drawer) often(label string, of int) bool {
	return rapid.IntRange(0, of-1).Draw(d.t, label) > 0
}

func (d *drawer) settings() subscription.Settings {
	return rapid.SampledFrom(kinds).Draw(d.t, "settings")
}

// name draws a name: most often one that is taken.
func (d *drawer) name() subscription.Name {
	var taken []subscription.Name
	for _, s := range d.model.sorted() {
		taken = append(taken, s.Name)
	}
	if len(taken) == 0 || !d.often("taken", 8) {
		taken = names
	}
	return rapid.SampledFrom(taken).Draw(d.t, "name")
}

// position draws one around the end of the log, as of the command after this one.
func (d *drawer) position(from storage.Position) storage.Position {
	here := storage.Position(d.Applied().Index) + 1
	return rapid.SampledFrom([]storage.Position{0, from, from, from + 1, from + 2, max(from, 1) - 1, here - 1, here, here + 1, 1 << 60}).Draw(d.t, "position")
}

func (d *drawer) start() subscription.Start {
	return subscription.Start{Position: d.position(2), Now: rapid.Bool().Draw(d.t, "now")}
}

func (d *drawer) place() subscription.Place {
	return subscription.Place{RunID: rapid.SampledFrom(runs).Draw(d.t, "run"), RunSeq: rapid.Uint64Range(1, 3).Draw(d.t, "seq")}
}

// letter draws the place of a dead letter, if there is one.
func (d *drawer) letter(s *modelSub, redriving bool) subscription.Place {
	var there []subscription.Place
	if s != nil {
		for _, l := range s.sorted() {
			if l.Redriving == redriving {
				there = append(there, l.Place)
			}
		}
	}
	if len(there) == 0 || !d.often("there", 6) {
		return d.place()
	}
	return rapid.SampledFrom(there).Draw(d.t, "letter")
}

func (d *drawer) item() subscription.Settlement {
	s := d.model.subs[d.name()]
	if s == nil {
		return subscription.Settlement{Number: d.model.last + 1, Version: 1}
	}
	item := subscription.Settlement{
		Number: s.Number, Version: s.Version + rapid.SampledFrom([]uint64{0, 0, 0, 0, 0, 0, 0, 1, ^uint64(0)}).Draw(d.t, "off"),
		Position: d.position(s.Position), Acknowledged: rapid.Uint64Range(0, 3).Draw(d.t, "acknowledged"),
	}
	few := func(label string) int { return rapid.SampledFrom([]int{0, 0, 1, 1, 3}).Draw(d.t, label) }
	for range few("owed") {
		p := d.place()
		item.Owed = append(item.Owed, subscription.OwedRun{RunID: p.RunID, NextSeq: p.RunSeq, Attempts: rapid.Uint32Range(0, 2).Draw(d.t, "attempts")})
	}
	for range few("paid") {
		item.Paid = append(item.Paid, d.place().RunID)
	}
	for range few("parked") {
		item.Parked = append(item.Parked, subscription.ParkedEvent{
			Place: d.letter(s, true), EventID: "id", EventType: "RunFailed", Attempts: rapid.Uint32Range(0, 2).Draw(d.t, "attempts"),
			Error: rapid.SampledFrom([]string{"", "refused"}).Draw(d.t, "error"),
		})
	}
	for range few("delivered") {
		item.Delivered = append(item.Delivered, d.letter(s, true))
	}
	return item
}

func (d *drawer) which(s *modelSub) subscription.Which {
	switch rapid.IntRange(0, 3).Draw(d.t, "which") {
	case 0:
		return subscription.Which{All: true}
	case 1:
		return subscription.Which{RunID: rapid.SampledFrom(runs).Draw(d.t, "run")}
	default:
		var w subscription.Which
		for range rapid.IntRange(1, 3).Draw(d.t, "events") {
			w.Events = append(w.Events, d.letter(s, rapid.Bool().Draw(d.t, "redriving")))
		}
		return w
	}
}

func (d *drawer) step() step {
	name := d.name()
	switch rapid.IntRange(0, 15).Draw(d.t, "what") {
	case 0, 1, 2:
		name = rapid.SampledFrom(names).Draw(d.t, "new")
		settings := d.settings()
		if s := d.model.subs[name]; s != nil && rapid.Bool().Draw(d.t, "same") {
			settings = s.Settings
		}
		return d.create(name, settings, d.start(), rapid.Bool().Draw(d.t, "paused"))
	case 3:
		from := subscription.Subscription{Name: name, Version: 1}
		if s := d.model.subs[name]; s != nil {
			from = s.Subscription
		}
		from.Version += rapid.SampledFrom([]uint64{0, 0, 0, 1}).Draw(d.t, "off")
		from.Number += rapid.SampledFrom([]uint64{0, 0, 0, 1}).Draw(d.t, "other")
		return d.update(from, d.settings())
	case 4:
		return d.delete(name)
	case 5:
		return d.pause(name, rapid.Bool().Draw(d.t, "paused"))
	case 6:
		return d.seek(name, d.start())
	case 7, 8:
		return d.letters(false, name, d.which(d.model.subs[name]))
	case 9:
		return d.letters(true, name, d.which(d.model.subs[name]))
	default:
		var items []subscription.Settlement
		for range rapid.SampledFrom([]int{0, 1, 1, 1, 2, 3}).Draw(d.t, "items") {
			items = append(items, d.item())
		}
		return d.settle(items...)
	}
}

// TestSubscriptionsBUS compares subscriptions with a model through refused commands, commands of
// several operations, and restarts: BUS-2, BUS-4, BUS-5, BUS-6. After each entry it makes every row
// again. Another store with the same log is the same (D11).
func TestSubscriptionsBUS(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := &drawer{bed: open(t), t: t}
		for range rapid.IntRange(1, 50).Draw(t, "entries") {
			if !d.often("restart", 16) {
				if err := d.Reopen(); err != nil {
					t.Fatal(err)
				}
			}
			var commands []command
			for range rapid.SampledFrom([]int{1, 1, 2, 3}).Draw(t, "commands") {
				var c command
				for range rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(t, "operations") {
					c = append(c, d.step())
				}
				if !d.often("refused", 10) {
					c = append(c, d.refusal())
				}
				commands = append(commands, c)
			}
			d.do(rapid.SampledFrom([]uint64{1, 1, 2, 5}).Draw(t, "gap"), commands...)
			d.check()
		}
		d.replay()
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestNumbersBUS6: a subscription that is deleted and made again has another number, and nothing
// that was proposed for the first has an effect on the second. That goes for settlements and
// updates, although its version is the same.
func TestNumbersBUS6(t *testing.T) {
	t.Parallel()
	b := open(t)
	t.Cleanup(func() { _ = b.Close() })
	name := names[2]
	b.do(1, command{b.create(name, kinds[0], subscription.Start{}, false)})
	old, item := b.of(name).Subscription, b.item(name)
	item.Owed = []subscription.OwedRun{{RunID: "run", NextSeq: 1}}
	b.do(1, command{b.delete(name), b.create(name, kinds[0], subscription.Start{}, false)})
	if now := b.of(name); now.Number == old.Number || now.Version != old.Version {
		t.Fatalf("made again: %+v; was %+v", now, old)
	}
	b.do(1, command{b.settle(item)}, command{b.update(old, kinds[1])})
	b.check()
	if s := b.of(name); s.OwedRuns != 0 || s.Version != old.Version {
		t.Errorf("changed: %+v", s)
	}
}

// TestNothingSkippedBUS6: the cursor neither falls by a Settle nor passes entries that a dispatcher
// cannot have read. Such an item has no effect at all, and the others have theirs.
func TestNothingSkippedBUS6(t *testing.T) {
	t.Parallel()
	b := open(t)
	t.Cleanup(func() { _ = b.Close() })
	at := subscription.Start{Position: 5}
	b.do(10, command{b.create(names[0], kinds[0], at, false), b.create(names[1], kinds[0], at, false)})
	for _, x := range []struct {
		to    storage.Position // 0: that of the command
		past  storage.Position
		moves bool
	}{{to: 4}, {to: 5, moves: true}, {to: 6, moves: true}, {to: 5}, {past: 0}, {past: 1}, {past: 1 << 40}, {to: 9, moves: true}} {
		first, second := b.item(names[0]), b.item(names[1])
		if first.Position = x.to; x.to == 0 {
			first.Position = storage.Position(b.Applied().Index) + 1 + x.past
		}
		first.Acknowledged, second.Acknowledged = 1, 1
		first.Owed = []subscription.OwedRun{{RunID: "run", NextSeq: uint64(first.Position)}}
		b.do(1, command{b.settle(first, second)})
		got, err := subscription.Find(b.Store, names[0])
		if err != nil || x.moves != (got.Version == first.Version+1) || x.moves != (got.Position == first.Position) {
			t.Errorf("cursor to %d: %+v, %v", first.Position, got, err)
		}
		if got, err := subscription.Find(b.Store, names[1]); err != nil || got.Version != second.Version+1 {
			t.Errorf("the other one: %+v, %v", got, err)
		}
		b.check()
	}
	here := b.item(names[0])
	here.Position = storage.Position(b.Applied().Index)
	b.do(1, command{b.settle(here)})
	if b.check(); b.of(names[0]).Position != here.Position {
		t.Error("the cursor does not reach the last entry")
	}
}

// TestSettleItemsBUS6: several items of one operation name rising versions of a subscription.
func TestSettleItemsBUS6(t *testing.T) {
	t.Parallel()
	b := open(t)
	t.Cleanup(func() { _ = b.Close() })
	b.do(1, command{b.create(names[0], kinds[0], subscription.Start{}, false)})
	items := slices.Repeat([]subscription.Settlement{b.item(names[0])}, 3)
	items[1].Version++
	b.do(1, command{b.settle(items...)})
	b.check()
	if s := b.of(names[0]); s.Version != 3 {
		t.Errorf("version %d", s.Version)
	}
}
