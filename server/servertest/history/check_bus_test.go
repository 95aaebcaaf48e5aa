package history

import "testing"

// TestBus shows the verdicts on what the receivers of a subscription saw.
func TestBus(t *testing.T) {
	const name = "s"
	act := func(kind ActKind, call, ret int64, seqs ...uint64) Act {
		a := Act{Kind: kind, Subscription: name, Call: call, Return: ret}
		for _, seq := range seqs {
			a.Places = append(a.Places, Place{"r", seq})
		}
		return a
	}
	from := func(a Act, at int64) Act { a.From = at; return a }
	settled := func(a Act) Act { a.Settled = true; return a }
	began := act(Reset, 1, 2)
	// late is when nothing is on its way any more.
	const late = 100 + settledWithin
	first := []Act{began, act(Delivered, 10, 11, 1), settled(act(Acked, 12, 13, 1))}
	second := []Act{act(Delivered, 14, 15, 2), act(Acked, 16, 17, 2)}
	with := func(list []Act, more ...Act) []Act { return append(append([]Act{}, list...), more...) }
	both := with(first, second...)
	for _, tt := range []struct {
		name string
		hold bool
		ok   bool
		acts []Act
	}{
		{"all acknowledged in order", false, true, both},
		{"never made", false, true, nil},
		{"one is skipped", false, false, first},
		{"one is skipped, which the cursor began behind", false, true,
			with([]Act{from(began, stampOf(1))}, second...)},
		{"one is skipped after the cursor was moved back", false, false, with(both, act(Reset, 20, 21), act(Delivered, 22, 23, 1), settled(act(Acked, 24, 25, 1)))},
		{"all again after the cursor was moved back", false, true,
			with(both, act(Reset, 20, 21), act(Delivered, 22, 23, 1), act(Acked, 24, 25, 1), act(Delivered, 26, 27, 2), act(Acked, 28, 29, 2))},
		{"one is passed over", false, true, with(first, from(act(Reset, 20, 21), stampOf(2)))},
		{"one is parked in the end", false, true, with(first, act(Letters, 20, 21, 2))},
		{"one was parked, and is not in the end", false, false, with(first, act(Letters, 20, 21, 2), act(Letters, 30, 31))},
		{"one is discarded", true, true, with(first, act(Letters, 20, 21, 2), act(Discarded, 22, 23, 2), act(Letters, 30, 31))},
		{"the second comes first", false, false,
			with([]Act{began}, act(Delivered, 10, 11, 2), act(Acked, 12, 13, 2), act(Delivered, 14, 15, 1), act(Acked, 16, 17, 1))},
		{"the second comes before the first is acknowledged", false, false, with([]Act{began, act(Delivered, 10, 11, 1), act(Delivered, 12, 13, 2)},
			act(Acked, 14, 15, 1), act(Acked, 14, 15, 2))},
		{"the second comes behind a dead letter", false, true, with([]Act{began, act(Parked, 3, 3, 1)}, append(second, act(Letters, 20, 21, 1))...)},
		{"the second comes before the first is a dead letter", false, false,
			with([]Act{began}, append(second, act(Parked, 18, 18, 1), act(Letters, 20, 21, 1))...)},
		{"the second is not held by a dead letter", true, false, with([]Act{began, act(Parked, 3, 3, 1)}, append(second, act(Letters, 20, 21, 1))...)},
		{"the second is held until the dead letter is acknowledged", true, true,
			with([]Act{began}, act(Letters, 3, 4, 1), act(Redriven, 5, 6, 1), act(Delivered, 10, 11, 1), act(Acked, 12, 13, 1), second[0], second[1])},
		{"an event comes again", false, false, with(both, act(Delivered, late, late+1, 1))},
		{"an event comes again that was handed out before", false, true, with(both, act(Delivered, 12, late, 1))},
		{"an event comes again whose acknowledgement may not have been taken", false, true, with(both, act(Delivered, late, late+1, 2))},
		{"an event comes again after a change of the leader", false, true,
			with(both, Act{Kind: Interrupted, Call: 20}, act(Delivered, late, late+1, 1))},
		{"an event comes again that was redriven", false, true, with(both, act(Redriven, 30, 31, 1), act(Delivered, late, late+1, 1))},
		{"an event comes again, and another one was redriven", false, false, with(both, act(Redriven, 30, 31, 2), act(Delivered, late, late+1, 1))},
		{"an event comes again after the cursor was moved back without an answer", false, true,
			with(both, act(Reset, 30, 0), act(Delivered, late, late+1, 1))},
		{"an event that does not match", false, false, with(both, act(Delivered, 30, 31, 3))},
		{"an event that is not stored", false, false, with(both, act(Delivered, 30, 31, 9))},
	} {
		h := &History{Acts: tt.acts, Subscriptions: []Subscription{{Name: name, Tenant: "t", Types: []string{"Wanted"}, HoldRun: tt.hold}}}
		if report := checkedBus(h); report.OK() != tt.ok {
			t.Errorf("%s: want ok %t: %s", tt.name, tt.ok, report)
		}
	}
}

// TestUnrecordedBus shows what a leader may do that has recorded an acknowledgement late or not at
// all.
func TestUnrecordedBus(t *testing.T) {
	const name, change = "s", 10 * settledWithin
	act := func(kind ActKind, call int64, seq uint64) Act {
		return Act{Kind: kind, Subscription: name, Call: call, Return: call + 1, Places: []Place{{"r", seq}}}
	}
	acked := act(Acked, 12, 1)
	acked.Settled = true
	appended := func(at int64, idempotent bool) []Op {
		a := Append{Outcome: Outcome{Status: Acknowledged}, Results: []Result{{Idempotent: idempotent}}}
		return []Op{{Call: at, Return: at + 1, Appends: []Append{a}}}
	}
	for _, tt := range []struct {
		name string
		ok   bool
		more []Act
		ops  []Op
	}{
		{"it did nothing more", true, nil, nil},
		{"it handed out more for a time", true, []Act{act(Delivered, 14, 2), act(Acked, 16, 2)}, nil},
		{"it handed out more and more", false, []Act{act(Delivered, change/2, 2), act(Acked, change/2+2, 2)}, nil},
		{"the next one handed out more", true, []Act{act(Delivered, change+3, 2), act(Acked, change+5, 2)}, nil},
		{"it stored an append", false, nil, appended(change/2, false)},
		{"it stored an append at the end", true, nil, appended(change-2, false)},
		{"it stored an append before it should have recorded more", true, nil, appended(14, false)},
		{"it found an append", true, nil, appended(change/2, true)},
	} {
		acts := []Act{{Kind: Reset, Subscription: name, Call: 1, Return: 2}, act(Delivered, 10, 1), acked}
		acts = append(acts, tt.more...)
		acts = append(acts, Act{Kind: Interrupted, Call: change}, act(Delivered, change+1, 1))
		if len(tt.more) == 0 {
			acts = append(acts, act(Delivered, change+3, 2), act(Acked, change+5, 2))
		}
		h := &History{Acts: acts, Ops: tt.ops, Subscriptions: []Subscription{{Name: name, Tenant: "t", Types: []string{"Wanted"}}}}
		if report := checkedBus(h); report.OK() != tt.ok {
			t.Errorf("%s: want ok %t: %s", tt.name, tt.ok, report)
		}
	}
}

// checkedBus checks what a history has of subscriptions, together with a log of two events of the
// type Wanted and one of another.
func checkedBus(h *History) *Report {
	c := &checker{h: h, report: &Report{Counts: map[string]int{}}, witness: &nodeLog{}}
	for i, typ := range []string{"Wanted", "Wanted", "Other"} {
		r := &Record{Run: "r", RunSeq: uint64(i + 1), PersistedAt: stampOf(i), TenantID: "t", Type: typ}
		c.witness.records = append(c.witness.records, &recordRef{Record: r})
	}
	c.checkBus()
	return c.report
}
