package subscription_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"google.golang.org/protobuf/proto"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage/machine/subscription"
	"runlog/storage/storagetest"
)

// check compares all that can be read, and every row, with the model.
func (b *bed) check() {
	b.t.Helper()
	for _, name := range names {
		got, err := subscription.Find(b.Store, name)
		want := b.model.subs[name]
		if err != nil || (got == nil) != (want == nil) || got != nil && !reflect.DeepEqual(*got, want.Subscription) {
			b.t.Fatalf("subscription %s is\n%+v, %v; want\n%+v", name, got, err, want)
		}
		if want != nil {
			b.checkOne(want)
		}
	}
	b.checkNone(b.model.last + 1)
	b.checkList()
	b.checkTables()
}

func (b *bed) checkOne(want *modelSub) {
	b.t.Helper()
	n := want.Number
	got, err := subscription.ByNumber(b.Store, n)
	if err != nil || got == nil || !reflect.DeepEqual(*got, want.Subscription) {
		b.t.Fatalf("subscription %d is\n%+v, %v; want\n%+v", n, got, err, want)
	}
	state := subscription.State{Subscription: want.Subscription}
	for _, run := range slices.Sorted(maps.Keys(want.owed)) {
		state.Owed = append(state.Owed, want.owed[run])
	}
	letters := want.sorted()
	ofRuns := map[string][]subscription.DeadLetter{"": letters}
	for _, run := range runs {
		ofRuns[run] = nil
	}
	for _, d := range letters {
		ofRuns[d.RunID] = append(ofRuns[d.RunID], d)
		if d.Redriving {
			state.Redriving = append(state.Redriving, d.Place)
		}
	}
	if loaded, err := subscription.Load(b.Store, n); err != nil || loaded == nil || !reflect.DeepEqual(*loaded, state) {
		b.t.Fatalf("state of %d is\n%+v, %v; want\n%+v", n, loaded, err, state)
	}
	for run, want := range ofRuns {
		var list []subscription.DeadLetter
		for more, behind := true, (subscription.Place{}); more; {
			page, rest, err := subscription.DeadLetters(b.Store, n, run, behind, 2)
			if err != nil || len(page) > 2 || rest && len(page) < 2 {
				b.t.Fatalf("%d dead letters on a page, more %t, %v", len(page), rest, err)
			}
			list, more = append(list, page...), rest
			if more {
				behind = page[1].Place
			}
		}
		if !reflect.DeepEqual(list, want) {
			b.t.Fatalf("dead letters of %d, run %q:\n%+v, want\n%+v", n, run, list, want)
		}
	}
}

// checkNone wants no subscription of a number.
func (b *bed) checkNone(n uint64) {
	b.t.Helper()
	got, err := subscription.ByNumber(b.Store, n)
	state, errLoad := subscription.Load(b.Store, n)
	letters, more, errLetters := subscription.DeadLetters(b.Store, n, "", subscription.Place{}, 1)
	if err := errors.Join(err, errLoad, errLetters); err != nil || got != nil || state != nil || letters != nil || more {
		b.t.Fatalf("subscription %d: %v, %v, %v, %v", n, got, state, letters, err)
	}
}

func (b *bed) checkList() {
	b.t.Helper()
	for _, tenant := range []string{"", "a", "ab", "b"} {
		var want, list []*subscription.Subscription
		for _, s := range b.model.sorted() {
			if tenant == "" || s.Name.Tenant == tenant {
				want = append(want, &s.Subscription)
			}
		}
		for more, behind := true, (subscription.Name{}); more; {
			page, rest, err := subscription.List(b.Store, tenant, behind, 2)
			if err != nil || len(page) > 2 || rest && len(page) < 2 {
				b.t.Fatalf("%d subscriptions on a page, more %t, %v", len(page), rest, err)
			}
			list, more = append(list, page...), rest
			if more {
				behind = page[1].Name
			}
		}
		if !reflect.DeepEqual(list, want) {
			b.t.Fatalf("subscriptions of tenant %q: %+v, want %+v", tenant, list, want)
		}
	}
}

// checkTables makes every row but those of subscriptions from the model, and compares.
func (b *bed) checkTables() {
	b.t.Helper()
	u64 := func(n uint64) string { return string(binary.BigEndian.AppendUint64(nil, n)) }
	row := func(m proto.Message) string {
		data, err := proto.Marshal(m)
		if err != nil {
			b.t.Fatal(err)
		}
		return string(data)
	}
	rows := b.tables()
	want, tenants := map[string]string{}, map[string]uint64{}
	if b.model.last > 0 {
		want["X"] = row(&recordv1.SubscriptionNumbers{Last: b.model.last})
	}
	for name, s := range b.model.subs {
		want["S"+u64(s.Number)] = rows["S"+u64(s.Number)] // Find compares it.
		want["U"+name.Tenant+"\x00"+name.ID+"\x00"] = u64(s.Number)
		tenants[name.Tenant]++
		want["X"+name.Tenant+"\x00"] = u64(tenants[name.Tenant])
		for run, o := range s.owed {
			want["V"+u64(s.Number)+run] = row(&recordv1.Owed{NextSeq: o.NextSeq, Attempts: o.Attempts})
		}
		for p, d := range s.letters {
			rest := p.RunID + "\x00" + u64(p.RunSeq)
			want["W"+u64(s.Number)+"\x00"+rest] = row(&recordv1.ParkedLetter{
				EventId: d.EventID, EventType: d.EventType, Attempts: d.Attempts, Error: d.Error, ParkedAt: d.ParkedAt,
			})
			if d.Redriving {
				want["W"+u64(s.Number)+"\x01"+rest] = ""
			}
		}
	}
	if maps.Equal(rows, want) {
		return
	}
	for key, value := range want {
		if got, ok := rows[key]; !ok || got != value {
			b.t.Errorf("row %q is %q, want %q", key, got, value)
		}
	}
	for key := range rows {
		if _, ok := want[key]; !ok {
			b.t.Errorf("row %q is too much", key)
		}
	}
	b.t.FailNow()
}

// tables returns all rows of the machine.
func (b *bed) tables() map[string]string {
	b.t.Helper()
	rows, err := storagetest.RowsOf(b.Store, subscription.Machine{})
	if err != nil {
		b.t.Fatal(err)
	}
	return rows
}

func runID(n int) string { return fmt.Sprintf("run-%d", n) }
