package mutants

// queues are bugs about run requests, leases and running slots. The machine's own tests compare it
// with a model and draw their cases.
func queues() []Mutant {
	const (
		machine = "storage/machine/queue"
		model   = "TestQueueQUE"
	)
	bug := func(name, breaks, what, file, text, replacement string) Mutant {
		return Mutant{
			Name: name, Breaks: breaks, What: what, Package: machine, Test: model,
			Edits: []Edit{{File: machine + "/" + file, Old: text, New: replacement}},
		}
	}
	ordered := func(m Mutant) Mutant {
		m.Test = "TestOrderQUE5"
		return m
	}
	return []Mutant{
		bug("queue-local-clock", "QUE-9", "a lease expires by the clock of the node that applies", "lease.go",
			"State(m.State) == Leased && m.ExpiresAt > w.tx.Stamp()", "State(m.State) == Leased && m.ExpiresAt > time.Now().UnixNano()"),
		bug("queue-renewed-after-expiry", "QUE-9", "a lease that has expired can be renewed and released", "lease.go",
			"State(m.State) == Leased && m.ExpiresAt > w.tx.Stamp()", "State(m.State) == Leased"),
		bug("queue-fence-ignored", "QUE-7", "a lease is renewed and released with the fence of an earlier one", "lease.go",
			"case fence != m.Fence:", "case fence > m.Fence:"),
		bug("queue-slot-freed-early", "QUE-7", "a run that was started holds no slot", "rows.go",
			"q.Leased+q.Running < s.MaxRunning", "q.Leased < s.MaxRunning"),
		bug("queue-slot-freed-twice", "QUE-7", "the end of a run frees two slots", "rows.go",
			"\tq.Ends++\n", "\tq.Ends++\n\tif State(m.State) == Running && q.Running > 1 {\n\t\tq.Running--\n\t}\n"),
		bug("queue-key-forgotten", "QUE-2", "the request key of a run is forgotten with the end of its request", "rows.go",
			"\tw.tx.Delete(runKey(m.RunId))\n\tq.Ends++\n", "\tw.tx.Delete(runKey(m.RunId))\n\tw.tx.Delete(requestKey(m.RequestKey))\n\tq.Ends++\n"),
		bug("queue-attempts-forgotten", "QUE-7", "a start attempt is not counted", "lease.go",
			"\tr.StartAttempts++\n", "\tr.StartAttempts = max(r.StartAttempts, 1)\n"),
		bug("queue-cancelled-not-fenced", "QUE-8", "the worker of a run whose request was cancelled keeps a current fence", "apply.go",
			"\tif _, err := w.raiseFence(r.RunId, r.Fence); err != nil {\n\t\treturn nil, err\n\t}\n\treturn nil, w.end(q, r)", "\treturn nil, w.end(q, r)"),
		bug("queue-timer-left", "QUE-6", "a run that is released keeps the timer of its lease", "release.go",
			"\tif err := w.leave(q, r); err != nil {\n\t\treturn nil, nil, err\n\t}\n\tr.Outcome = m.Outcome\n",
			"\tr.Outcome = m.Outcome\n"),
		ordered(bug("queue-aging-inverted", "QUE-5", "a run that waits loses priority", "queue.go",
			"uint64(priority) + uint64(max(0, at-enqueuedAt))/uint64(period)", "uint64(priority) + 1<<32 - uint64(max(0, at-enqueuedAt))/uint64(period)")),
		ordered(bug("queue-order-lost", "QUE-5", "of runs with the same effective priority, the newer one comes first", "lease.go",
			"e == best && line.Order < first.Order", "e == best && line.Order > first.Order")),
	}
}

// leases are bugs about runs that workers of the simulator lease, hold for too long and start.
func leases() []Mutant {
	const machine = "storage/machine/queue"
	return []Mutant{{
		Name: "fence-not-on-streams", Breaks: "QUE-8", What: "the fence of a request on a stream is not checked",
		Edits: []Edit{{
			File: "server/events/append_stream.go",
			Old:  "if r.append, r.err = s.parse(ctx, req); r.err == nil {",
			New:  "if r.append, r.err = s.parse(ctx, req); r.err == nil {\n\t\tr.append.Fence = nil",
		}},
	}, {
		Name: "fence-as-least", Breaks: "QUE-8", What: "an append with a fence below the current one is stored",
		Edits: []Edit{{
			File: "storage/refuse.go",
			Old:  "m.Fence != nil && *m.Fence != r.head.Fence:",
			New:  "m.Fence != nil && *m.Fence > r.head.Fence:",
		}},
	}, {
		Name: "leased-before-expiry", Breaks: "QUE-6", What: "a run is leased again although its lease lasts",
		Edits: []Edit{{
			File: machine + "/lease.go",
			Old:  "return later(w.tx.Stamp(), time.Duration(ttl))",
			New:  "return later(w.tx.Stamp(), time.Duration(ttl)/2)",
		}, {
			File: machine + "/lease.go",
			Old:  "ExpiresAt: r.ExpiresAt, StartAttempt:",
			New:  "ExpiresAt: r.ExpiresAt + (r.ExpiresAt - w.tx.Stamp()), StartAttempt:",
		}},
	}, {
		Name: "slots-exceeded", Breaks: "QUE-3", What: "one run more than maxRunning is leased",
		Edits: []Edit{{
			File: machine + "/rows.go",
			Old:  "q.Leased+q.Running < s.MaxRunning",
			New:  "q.Leased+q.Running <= s.MaxRunning",
		}},
	}, {
		Name: "started-and-ready", Breaks: "QUE-7", What: "a run that was started is leased again",
		Edits: []Edit{{
			File: machine + "/release.go",
			Old:  "fatal = w.enter(q, r, Running)",
			New:  "fatal = w.enter(q, r, Ready)",
		}},
	}, {
		Name: "failed-start-lost", Breaks: "QUE-7", What: "a run whose start has failed is in no queue any more",
		Edits: []Edit{{
			File: machine + "/release.go",
			Old:  "fatal = w.wait(q, r, m.RetryAt)",
			New:  "w.tx.Delete(runKey(r.RunId))",
		}},
	}, {
		Name: "start-before-release", Breaks: "QUE-7", What: "the events of a release are stored although the release is refused",
		Edits: []Edit{{
			File: "server/queue/started.go",
			Old:  "\t\treturn s.node.ExecuteAppend(ctx, a, replica.Around{Before: operations})\n",
			New: `		if done, err := s.node.ExecuteAppend(ctx, a, replica.Around{}); err != nil {
			return done, err
		}
		return s.node.ExecuteAppend(ctx, a, replica.Around{Before: operations})
`,
		}},
	}, {
		Name: "request-not-unique", Breaks: "QUE-2", What: "a request with another plan under the same key is answered as the first",
		Edits: []Edit{{
			File: machine + "/request.go",
			Old:  "if !bytes.Equal(k.PlanDigest, m.PlanDigest) {",
			New:  "if !bytes.Equal(k.PlanDigest, m.PlanDigest) && k == nil {",
		}},
	}}
}
