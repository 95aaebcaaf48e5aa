package mutants

import "slices"

// deliveries are bugs about what the leader hands out. Models of a window and of a dispatcher draw
// their cases.
func deliveries() []Mutant {
	const window, delivery in = "server/subscriptions/window", "server/subscriptions/delivery"
	return slices.Concat(foundBy(window, "TestDeliversAllBUS3BUS4BUS6",
		bug("cursor-passes-under-way", "BUS-6", "a run owes nothing while its event is under way",
			window.replace("(l lane) owed(c)", "f.Position <= c", "f.Position <= c && !l.busy")),
		bug("attempts-forgotten", "BUS-4", "the next leader does not know of failed attempts",
			window.replace("(l lane) owed", "Owed{r, l.from + 1, a}", "Owed{r, l.from + 1, 0}")),
		bug("parked-ahead-of-cursor", "BUS-6", "an event is a dead letter before the cursor has passed it",
			window.replace("(Window) record(s)", "p.at <= s.Position", "p.at <= s.readTo")),
		bug("parts-dropped", "BUS-6", "dead letters that found no room in a settlement are forgotten",
			window.replace("(Window) Settled(s)", "return r[p.key()]", "return r[p.key()] || s.Part")),
		bug("order-lost-on-retry", "BUS-3", "after a failed attempt the next event of the run comes first",
			window.before("(Window) failed(l)", "if l.redriven == nil {}", `
				if len(l.queue) > 1 && l.redriven == nil {
					l.queue[0], l.queue[1] = l.queue[1], l.queue[0]
				}`)),
		bug("one-attempt-more", "BUS-4", "an event has one attempt more than maxAttempts",
			window.replace("(Window) failed", "*a >= s.MaxAttempts", "*a > s.MaxAttempts")),
		bug("attempts-inherited", "BUS-4", "an event begins with the failed attempts of the one before it",
			window.replace("(Window) pass(l)", "l.queue, l.attempts = q, 0", "l.queue = q")),
		bug("late-ack-settles-earlier", "BUS-6", "an acknowledgement settles the events of its run before it",
			window.replace("(Window) owes(p)", "l.from+1 == p.Seq", "l.from < p.Seq")),
		bug("held-run-goes-on", "BUS-4", "the events behind a dead letter do not wait",
			window.replace("(Window) holds", "l.letters > 0", "l.letters > 1")),
		bug("spilled-too-far", "BUS-6", "an event that was dropped from memory is skipped",
			window.replace("(Window) spill", "f.RunSeq - 1", "f.RunSeq")),
		bug("redriven-not-delivered", "BUS-5", "a redriven dead letter is not delivered again",
			window.replace("(Window) setLetters(l, r)", "l.letters, l.again = n, a", "l.letters, l.again = n, nil")),
		bug("discarded-under-way", "BUS-5", "a dead letter that is discarded stays under way",
			window.remove("(Window) setLetters", "w.end()")),
	), foundBy(delivery, "TestDeliversAllBUS1BUS3BUS6",
		bug("owed-not-loaded", "BUS-6", "the next leader forgets the runs that owe events behind the cursor",
			delivery.replace("(subscriber) begin", "w.Owe(o.RunID, s, a)", "_ = o")),
		bug("letters-not-loaded", "BUS-4", "after a change of leader no run waits for its dead letters",
			delivery.remove("(subscriber) begin", "w.Letters()")),
	), foundBy(delivery, "TestReadOrDueBUS1BUS2BUS6",
		bug("caught-up-too-early", "BUS-6", "nothing is due for a subscription that has not read up to the router",
			delivery.replace("(t term) caughtUp(s, p)", "t.at > p", "false")),
		bug("reads-beyond-mail", "BUS-2", "a subscription reads beyond the changes that it has read of its mail",
			delivery.after("(s subscriber) prepare", "s.readMail()", "s.limit = s.term.position()")),
		bug("seek-makes-nothing-due", "BUS-2", "after a seek, events behind the cursor are not due",
			delivery.remove("(subscriber) begin", "t.makeDue()")),
	), foundBy(delivery, "TestFilterUnderLoadBUS2",
		bug("filter-of-before", "BUS-2", "after an update the events match by the filter of before",
			delivery.replace("(s subscriber) changed", "append(s.filters, f)", "s.filters")),
	), foundBy(delivery, "TestAckBeforeSeekBUS2BUS8",
		bug("ack-of-before-seek", "BUS-2", "an acknowledgement from before a seek counts",
			delivery.replace("(s subscriber) places", "r.Sought >= s.sought", "r.Sought <= s.sought")),
	), foundBy(delivery, "TestUnrecordedBUS6",
		bug("unrecorded-goes-on", "BUS-6", "a leader that can record nothing goes on delivering",
			delivery.replace("(s subscriber) overdue", "s.unrecorded != 0", "false")),
	), foundBy(window, "TestDeadSinkBUS9",
		bug("dead-sink-gets-all", "BUS-9", "every event is tried at a sink that is down",
			window.replace("(w Window) doubts", "w.failures >= m", "w.failures > 1000*m")),
	), foundBy(window, "TestPoisonRunsBUS9",
		bug("poison-keeps-all", "BUS-9", "runs that always fail keep all others back",
			window.replace("(w Window) nextFresh", "w.probe != nil || p", "true")),
	), foundBy(window, "TestSlowRetriesLeaveRoomBUS9",
		bug("retries-take-all", "BUS-9", "runs that fail slowly take all that may be in flight",
			window.replace("(w Window) retryTurn", "w.retried < o", "true")),
	))
}
