package mutants

// deliveries are bugs about what the leader hands out. Models of a window and of a dispatcher draw
// their cases.
func deliveries() []Mutant {
	const window, delivery = "server/subscriptions/window", "server/subscriptions/delivery"
	bug := func(pkg, test string) func(name, breaks, what, file, text, replacement string) Mutant {
		return func(name, breaks, what, file, text, replacement string) Mutant {
			return Mutant{
				Name: name, Breaks: breaks, What: what, Package: pkg, Test: test,
				Edits: []Edit{{File: pkg + "/" + file, Old: text, New: replacement}},
			}
		}
	}
	inWindow, inDelivery := bug(window, "TestDeliversAllBUS3BUS4BUS6"), bug(delivery, "TestDeliversAllBUS1BUS3BUS6")
	return []Mutant{
		inWindow("cursor-passes-under-way", "BUS-6", "a run owes nothing while its event is under way", "settle.go",
			"return Owed{l.runID, first.RunSeq, l.attempts}, first.Position <= cursor",
			"return Owed{l.runID, first.RunSeq, l.attempts}, first.Position <= cursor && !l.busy"),
		inWindow("attempts-forgotten", "BUS-4", "the next leader does not know of failed attempts", "settle.go",
			"return Owed{l.runID, l.from + 1, l.attempts}, l.fromAt <= cursor", "return Owed{l.runID, l.from + 1, 0}, l.fromAt <= cursor"),
		inWindow("parked-ahead-of-cursor", "BUS-6", "an event is a dead letter before the cursor has passed it", "settle.go",
			"p.at <= s.Position", "p.at <= s.readTo"),
		inWindow("parts-dropped", "BUS-6", "dead letters that found no room in a settlement are forgotten", "settle.go",
			"return recorded[p.key()] })", "return recorded[p.key()] || s.Part })"),
		inWindow("order-lost-on-retry", "BUS-3", "after a failed attempt the next event of the run comes first", "outcome.go",
			"\tif l.redriven == nil { // Others need",
			"\tif len(l.queue) > 1 && l.redriven == nil {\n\t\tl.queue[0], l.queue[1] = l.queue[1], l.queue[0]\n\t}\n\tif l.redriven == nil { // Others need"),
		inWindow("one-attempt-more", "BUS-4", "an event has one attempt more than maxAttempts", "outcome.go",
			"*attempts >= w.settings.MaxAttempts", "*attempts > w.settings.MaxAttempts"),
		inWindow("attempts-inherited", "BUS-4", "an event begins with the failed attempts of the one before it", "outcome.go",
			"\t\tl.queue, l.attempts = l.queue[1:], 0\n\t}\n\tw.place(l)\n}\n\n// Fail",
			"\t\tl.queue = l.queue[1:]\n\t}\n\tw.place(l)\n}\n\n// Fail"),
		inWindow("late-ack-settles-earlier", "BUS-6", "an acknowledgement settles the events of its run before it", "outcome.go",
			"l.from+1 == p.Seq", "l.from < p.Seq"),
		inWindow("held-run-goes-on", "BUS-4", "the events behind a dead letter do not wait", "window.go",
			"return w.settings.HoldRun && l.letters > 0", "return w.settings.HoldRun && l.letters > 1"),
		inWindow("spilled-too-far", "BUS-6", "an event that was dropped from memory is skipped", "spill.go",
			"l.spilled, l.from, l.fromAt = true, first.RunSeq-1, first.Position", "l.spilled, l.from, l.fromAt = true, first.RunSeq, first.Position"),
		inWindow("redriven-not-delivered", "BUS-5", "a redriven dead letter is not delivered again", "letters.go",
			"l.letters, l.again = r.Count, r.Redriven", "l.letters, l.again = r.Count, nil"),
		inWindow("discarded-under-way", "BUS-5", "a dead letter that is discarded stays under way", "letters.go",
			"\t\tw.end(l)\n", ""),
		inDelivery("attached-behind-tail", "BUS-6", "the tail delivers for a subscription that has not read up to it", "tail.go",
			"s.window.ReadTo() >= storage.Position(t.collecting.Load())", "s.window.ReadTo() > 0"),
		inDelivery("filter-of-before", "BUS-2", "after an update the events match by the filter of before", "subscriber.go",
			"\ts.filter.Store(filterOf(s.row))\n}\n\n// maxLanes",
			"\tif s.filter.Load() == nil {\n\t\ts.filter.Store(filterOf(s.row))\n\t}\n}\n\n// maxLanes"),
		inDelivery("owed-not-loaded", "BUS-6", "the next leader forgets the runs that owe events behind the cursor", "subscriber.go",
			"\t\ts.window.Owe(o.RunID, o.NextSeq, o.Attempts)\n", "\t\t_ = o\n"),
		inDelivery("letters-not-loaded", "BUS-4", "after a change of leader no run waits for its dead letters", "subscriber.go",
			"\ts.window.Letters(x.DeadLetters, x.letters)\n}\n\nfunc (s *subscriber) setRowLocked",
			"}\n\nfunc (s *subscriber) setRowLocked"),
		bug(delivery, "TestAckBeforeSeekBUS2BUS8")("ack-of-before-seek", "BUS-2", "an acknowledgement from before a seek counts", "ref.go",
			"r.Sought >= s.sought", "r.Sought <= s.sought"),
		bug(delivery, "TestUnrecordedBUS6")("unrecorded-goes-on", "BUS-6", "a leader that can record nothing goes on delivering", "settle.go",
			"s.unrecorded != 0 &&", "false &&"),
		bug(window, "TestDeadSinkBUS9")("dead-sink-gets-all", "BUS-9", "every event is tried at a sink that is down", "turn.go",
			"w.failures >= most", "w.failures > 1000*most"),
		bug(window, "TestPoisonRunsBUS9")("poison-keeps-all", "BUS-9", "runs that always fail keep all others back", "turn.go",
			"case w.probe != nil || w.probeAt != 0:", "case true:"),
		bug(window, "TestSlowRetriesLeaveRoomBUS9")("retries-take-all", "BUS-9", "runs that fail slowly take all that may be in flight", "turn.go",
			"return w.retried < others", "return true"),
	}
}
