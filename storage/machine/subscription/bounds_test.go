package subscription_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"runlog/storage"
	"runlog/storage/machine/subscription"
	"runlog/storage/storagetest"
)

// TestTooManySubscriptionsBUS2: a tenant has so many subscriptions and no more, and so have all
// tenants together. What there is is still served, another tenant has room, and so has one that
// deletes.
func TestTooManySubscriptionsBUS2(t *testing.T) {
	t.Parallel()
	b := open(t)
	t.Cleanup(func() { _ = b.Close() })
	name := func(tenant string, n int) subscription.Name {
		return subscription.Name{Tenant: tenant, ID: fmt.Sprint(n)}
	}
	apply := func(ops ...storage.Operation) error {
		t.Helper()
		c, err := storage.EncodeCommand(ops...)
		if err != nil {
			t.Fatal(err)
		}
		p := storage.NewProposal(storagetest.Cluster, 0)
		p.Add(c)
		outcomes, err := b.Store.Apply(b.Applied().Index+1, 1, p.Seal(1))
		if err != nil {
			t.Fatal(err)
		}
		return outcomes[0].Err
	}
	create := func(name subscription.Name) storage.Operation {
		t.Helper()
		op, err := subscription.Create(name, &kinds[0], subscription.Start{}, false)
		if err != nil {
			t.Fatal(err)
		}
		return op
	}
	for _, tenant := range []string{"", "full"} {
		for first := 0; first < subscription.MaxSubscriptions; first += 1000 {
			ops := make([]storage.Operation, 1000)
			for i := range ops {
				ops[i] = create(name(tenant, first+i))
			}
			if err := apply(ops...); err != nil {
				t.Fatal(err)
			}
		}
		if err := apply(create(name(tenant, 0))); err != nil {
			t.Errorf("tenant %q: one that there is: %v", tenant, err)
		}
		e, ok := errors.AsType[*subscription.TooManyError](apply(create(name(tenant, subscription.MaxSubscriptions))))
		if !ok || e.Tenant != tenant {
			t.Errorf("tenant %q: one more: %v", tenant, e)
		}
		if err := apply(create(name("other"+tenant, 0))); err != nil {
			t.Errorf("another tenant than %q: %v", tenant, err)
		}
		gone, err := subscription.Delete(name(tenant, 1))
		if err != nil {
			t.Fatal(err)
		}
		if err := apply(gone, create(name(tenant, subscription.MaxSubscriptions))); err != nil {
			t.Errorf("tenant %q: another one: %v", tenant, err)
		}
	}
}

// TestBoundsBUS5: a settlement after which a subscription would owe too many runs, or have too many
// dead letters, has no effect. One that makes room for what it adds has. Delete leaves no row.
func TestBoundsBUS5(t *testing.T) {
	t.Parallel()
	b := open(t)
	t.Cleanup(func() { _ = b.Close() })
	name := names[3]
	b.do(10, command{b.create(name, kinds[0], subscription.Start{}, false)})
	settle := func(want bool, change func(item *subscription.Settlement)) {
		t.Helper()
		before := b.of(name).Version
		item := b.item(name)
		change(&item)
		b.do(1, command{b.settle(item)})
		if got := b.of(name).Version > before; got != want {
			t.Fatalf("settled %t, want %t: %+v", got, want, b.of(name).Subscription)
		}
	}
	owed := func(n int) subscription.OwedRun {
		return subscription.OwedRun{RunID: runID(n), NextSeq: 1}
	}
	parked := func(n int) subscription.ParkedEvent {
		return subscription.ParkedEvent{Place: subscription.Place{RunID: runID(n), RunSeq: 1}, Error: "refused"}
	}
	settle(true, func(item *subscription.Settlement) {
		for n := range subscription.MaxOwed {
			item.Owed = append(item.Owed, owed(n))
		}
		for n := range subscription.MaxDeadLetters {
			item.Parked = append(item.Parked, parked(n))
		}
	})
	settle(false, func(item *subscription.Settlement) { item.Owed = append(item.Owed, owed(subscription.MaxOwed)) })
	settle(false, func(item *subscription.Settlement) {
		item.Position, item.Paid, item.Parked = 5, []string{runID(0)}, append(item.Parked, parked(subscription.MaxDeadLetters))
	})
	settle(true, func(item *subscription.Settlement) {
		item.Owed, item.Paid = append(item.Owed, owed(1), owed(subscription.MaxOwed)), []string{runID(0)}
		item.Parked = append(item.Parked, parked(1))
	})
	redriven := subscription.Which{Events: []subscription.Place{parked(7).Place}}
	b.do(1, command{b.letters(false, name, redriven)})
	settle(true, func(item *subscription.Settlement) {
		item.Delivered, item.Parked = redriven.Events, append(item.Parked, parked(subscription.MaxDeadLetters))
	})
	b.checkTables()
	b.do(1, command{b.letters(false, name, subscription.Which{All: true})}, command{b.pause(name, true)})
	b.checkTables()
	b.do(1, command{b.delete(name)})
	b.check()
}

// TestErrorTextBUS4: the error of a dead letter is cut between characters, and what is not UTF-8 is
// replaced, so that any answer of a sink can be kept.
func TestErrorTextBUS4(t *testing.T) {
	t.Parallel()
	b := open(t)
	t.Cleanup(func() { _ = b.Close() })
	b.do(10, command{b.create(names[0], kinds[0], subscription.Start{}, false)})
	number := b.of(names[0]).Number
	for i, x := range []struct {
		text string
		want int // bytes
	}{
		{"refused", 7},
		{strings.Repeat("x", subscription.MaxErrorBytes), subscription.MaxErrorBytes},
		{strings.Repeat("x", subscription.MaxErrorBytes+1), subscription.MaxErrorBytes},
		{strings.Repeat("x", subscription.MaxErrorBytes-1) + "é", subscription.MaxErrorBytes - 1},
		{"bad \xff byte", len("bad \uFFFD byte")},
	} {
		op, err := subscription.Settle([]subscription.Settlement{{
			Number: number, Version: uint64(i) + 1, Parked: []subscription.ParkedEvent{{Place: subscription.Place{RunID: "r", RunSeq: 1}, Error: x.text}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		c, err := storage.EncodeCommand(op)
		if err != nil {
			t.Fatal(err)
		}
		p := storage.NewProposal(storagetest.Cluster, 0)
		p.Add(c)
		if _, err := b.Store.Apply(b.Applied().Index+1, 1, p.Seal(1)); err != nil {
			t.Fatal(err)
		}
		list, _, err := subscription.DeadLetters(b.Store, number, "", subscription.Place{}, 2)
		if err != nil || len(list) != 1 {
			t.Fatalf("%d dead letters, %v", len(list), err)
		}
		if got := list[0].Error; len(got) != x.want || !utf8.ValidString(got) {
			t.Errorf("error %d has %d bytes, want %d", i, len(got), x.want)
		}
	}
}

// TestOperationsBUS2 refuses to encode what no machine can keep.
func TestOperationsBUS2(t *testing.T) {
	t.Parallel()
	zero, big := subscription.Name{Tenant: "a\x00", ID: "s"}, kinds[0]
	big.Delivery = make([]byte, subscription.MaxSettingsBytes)
	place := subscription.Place{RunID: "r", RunSeq: 1}
	which := func(w subscription.Which) error {
		_, redrive := subscription.Redrive(names[0], w)
		_, discard := subscription.Discard(names[0], w)
		if (redrive == nil) != (discard == nil) {
			t.Errorf("%+v: %v and %v", w, redrive, discard)
		}
		return redrive
	}
	settle := func(s subscription.Settlement) error {
		_, err := subscription.Settle([]subscription.Settlement{s})
		return err
	}
	second := func(_ storage.Operation, err error) error { return err }
	for what, err := range map[string]error{
		"name with a zero byte":      second(subscription.Delete(zero)),
		"id with a zero byte":        second(subscription.Pause(subscription.Name{ID: "\x00"}, true)),
		"name without an id":         second(subscription.Seek(subscription.Name{Tenant: "a"}, subscription.Start{})),
		"large settings":             second(subscription.Create(names[0], &big, subscription.Start{}, false)),
		"large settings of update":   second(subscription.Update(&subscription.Subscription{Name: names[0]}, &big)),
		"too many items":             second(subscription.Settle(make([]subscription.Settlement, subscription.MaxItems+1))),
		"owed run without an id":     settle(subscription.Settlement{Owed: []subscription.OwedRun{{NextSeq: 1}}}),
		"owed run without a seq":     settle(subscription.Settlement{Owed: []subscription.OwedRun{{RunID: "r"}}}),
		"run with a zero byte":       settle(subscription.Settlement{Delivered: []subscription.Place{{RunID: "\x00", RunSeq: 1}}}),
		"parked event without a run": settle(subscription.Settlement{Parked: []subscription.ParkedEvent{{}}}),
		"no dead letters":            which(subscription.Which{}),
		"dead letters in two ways":   which(subscription.Which{All: true, RunID: "r"}),
		"event without a seq":        which(subscription.Which{Events: []subscription.Place{{RunID: "r"}}}),
		"run's zero byte":            which(subscription.Which{RunID: "r\x00"}),
		"too many events":            which(subscription.Which{Events: make([]subscription.Place, subscription.MaxPlaces+1)}),
	} {
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if err := errors.Join(which(subscription.Which{Events: []subscription.Place{place}}), settle(subscription.Settlement{Delivered: []subscription.Place{place}})); err != nil {
		t.Error(err)
	}
}
