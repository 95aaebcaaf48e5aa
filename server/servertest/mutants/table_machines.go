package mutants

import "slices"

// queues are bugs about run requests, leases and running slots. The machine's own tests compare it
// with a model and draw their cases.
func queues() []Mutant {
	const queue in = "storage/machine/queue"
	return slices.Concat(foundBy(queue, "TestQueueQUE",
		bug("queue-local-clock", "QUE-9", "a lease expires by the clock of the node that applies",
			queue.replace("(work) holds", "m.ExpiresAt > s", "m.ExpiresAt > time.Now().UnixNano()").importing("time")),
		bug("queue-renewed-after-expiry", "QUE-9", "a lease that has expired can be renewed and released",
			queue.replace("(work) holds", "m.ExpiresAt > s", "m.ExpiresAt != 0")),
		bug("queue-fence-ignored", "QUE-7", "a lease is renewed and released with the fence of an earlier one",
			queue.replace("(work) runOfLease", "f != m.Fence", "f > m.Fence")),
		bug("queue-slot-freed-early", "QUE-7", "a run that was started holds no slot",
			queue.replace("(queueState) canLease", "q.Leased + q.Running", "q.Leased")),
		bug("queue-slot-freed-twice", "QUE-7", "the end of a run frees two slots",
			queue.after("(work) end(q, m)", "q.Ends++", `
				if State(m.State) == Running && q.Running > 1 {
					q.Running--
				}`)),
		bug("queue-key-forgotten", "QUE-2", "the request key of a run is forgotten with the end of its request",
			queue.after("(w work) end(q, m)", "runKey(m.RunId)", "w.tx.Delete(requestKey(m.RequestKey))")),
		bug("queue-attempts-forgotten", "QUE-7", "a start attempt is not counted",
			queue.replace("(work) leaseRun", "r.StartAttempts++", "r.StartAttempts = max(r.StartAttempts, 1)")),
		bug("queue-cancelled-not-fenced", "QUE-8",
			"the worker of a run whose request was cancelled keeps a current fence",
			queue.remove("(work) cancel", "w.takeFence()")),
		bug("queue-fence-outlives-release", "QUE-8",
			"the worker of a lease that was released as failed or skipped keeps a current fence",
			queue.remove("(work) release", "w.endFence()")),
		bug("queue-fence-outlives-expiry", "QUE-8", "the worker of a lease that has expired keeps a current fence",
			queue.remove("(work) timer", "w.endFence()")),
		bug("queue-renewal-lengthens", "QUE-12", "a renewal without a ttl lasts as long as the queue's settings say",
			queue.replace("(work) renew", "w.expiry(r.LeaseTtl)", "w.expiry(int64(q.settings.LeaseTTL))")),
		bug("queue-free-slots-wait", "QUE-12", "runs that wait for a slot that is free count against maxQueued",
			queue.replace("(work) dispose", "w - min(w, f) >= s.MaxQueued", "w - min(0, f) >= s.MaxQueued")),
		bug("queue-started-twice", "QUE-12", "a run that was executed under its lease counts as started again with its release",
			queue.replace("(queueState) countStart", "!r.Counted", "true")),
		bug("queue-cancelled-ready", "QUE-10", "a run that has accepted a CANCEL is leased again",
			queue.replace("(work) wait", "m.Cancelling", "m.Cancelling && q == nil")),
		bug("queue-timer-left", "QUE-6", "a run that is released keeps the timer of its lease",
			queue.remove("(work) release", "w.leave()")),
		bug("queue-never-settled", "PRJ-17", "the leader does not learn which runs may have ended",
			queue.remove("(Machine) Unsettled", "w.tx.Set()")),
	), foundBy("projector/run", "TestTheLogKnowsTheEndPRJ17",
		bug("end-decided-twice", "PRJ-17", "the log takes a RunCompleted for the end of its run in every status",
			in("storage/internal/record").after("(Changes) After(s, t)", "s = s.After(e)", `
				if e == contract.RunCompleted {
					s = contract.StatusCompleted.Only()
				}`)),
	), foundBy(queue, "TestOrderQUE5",
		bug("queue-aging-inverted", "QUE-5", "a run that waits loses priority",
			queue.replace("effective(p)", "uint64(p) + a", "uint64(p) + 1<<32 - a")),
		bug("queue-order-lost", "QUE-5", "of runs with the same effective priority, the newer one comes first",
			queue.replace("(queueState) next", "l.Order < f.Order", "l.Order > f.Order")),
	))
}

// fences are bugs about fences and signals that a simulated world does not bring about: no worker
// of a cluster that was backed up writes to the restored one, and no run is cancelled by a signal.
func fences() []Mutant {
	const storage, releases, signals in = "storage", "server/queue", "server/signals"
	return slices.Concat(foundBy(storage, "TestAdoptedFencesQUE8",
		bug("fence-survives-restore", "QUE-8", "a restored run keeps the fence that it has in the backup",
			storage.remove("(applyTx) activeRun", "r.head.Fence = a.previous.Fence()")),
		bug("fences-not-kept", "QUE-8", "the next entry forgets the number above which the fences of a cluster are",
			storage.replace("(Store) beginApply", "prev.FencesAbove", "0")),
	), foundBy(releases, "TestRefusedStartQUE7",
		bug("start-before-release", "QUE-7", "the events of a release are stored although the release is refused",
			releases.before("(s Service) storeStart(c, r, a)", "s.node.ExecuteAppend()", `
				if done, err := s.node.ExecuteAppend(c, a, replica.Around{}); err != nil {
					return done, err
				}`)),
	), foundBy(signals, "TestCancelRacesStartQUE10",
		bug("cancel-in-two-commands", "QUE-10", "a CANCEL of a queued run is decided, and then the run is ended",
			signals.begin("(s Service) store(c, g, t, d)", `
				if a, err := s.event(g, t, d); err == nil {
					_, _ = s.node.AppendFrozen(c, a)
				}`)),
	))
}

// taken are bugs about keys that a producer has taken from an event of the authority. No producer
// of a simulated world does.
func taken() []Mutant {
	const storage, queue in = "storage", "server/queue"
	return slices.Concat(foundBy(storage, "TestConformance",
		bug("taken-is-duplicate", "IDM-5", "an event that must be new is answered as a duplicate",
			storage.replace("takenKey", "m.OnlyNew", "false")),
	), foundBy(storage, "TestEndsGetFreeAttemptsIDM10",
		bug("taken-is-assigned", "IDM-10", "the leader assigns an attempt whose key another event has",
			storage.replace("seekFree", "!t", "t == t")),
	), foundBy(queue, "TestEndAssignsAgainIDM10QUE10",
		bug("end-is-duplicate", "QUE-10", "the end of a run is answered as a duplicate of another event",
			queue.begin("(s Service) executeEnd(c, e, b)", "if e != nil { e.OnlyNew = false }")),
	))
}

// decisions are bugs about the records that only calls which decide write, and about which identity
// they are in the name of.
func decisions() []Mutant {
	const rpc, contract, signals in = "server/rpc", "proto/contract", "server/signals"
	return append([]Mutant{
		bug("producer-decides", "SEC-9", "a producer appends decisions",
			rpc.replace("checkDecisions", "i.May(deciders)", "i.May(deciders) || i != nil")),
		bug("producer-approves", "SEC-9", "a producer appends the approvals of a step that waits for several attesters",
			contract.begin("DecidedBy(n)", `if n == StepAttestationApproved { return "" }`)),
		bug("own-run-attested", "SEC-10", "an identity attests the steps of a run that it has started",
			signals.begin("(past) note(b)", `b = ""`)),
		bug("attested-for-anyone", "SEC-10", "an attester attests in the name of an identity that it may not act for",
			signals.replace("checkAttestation", "!a.MayActFor(b)", "!a.MayActFor(b) && a == nil")),
		bug("one-is-enough", "SEC-10", "one attester is enough where a contract asks for several",
			signals.begin("(attestation) count", "if true { return nil }")),
		bug("one-approval-less", "SEC-10", "one attester less than a contract asks for is enough",
			signals.replace("(a attestation) count", "a.said.Approvals, a.said.Needed = len(s), n",
				"a.said.Approvals, a.said.Needed = len(s)+1, n")),
	}, foundBy(signals, "TestApprovalsSEC10",
		// No attester of the simulator may act for another.
		bug("approves-twice", "SEC-10", "an attester approves twice, in other words",
			signals.replace("(a attestation) count", "b == a.attestedBy || b == a.caller.Authenticated().Name", "b == \"\"")),
	)...)
}

// leases are bugs about runs that workers of the simulator lease, hold for too long and start.
func leases() []Mutant {
	const queue in = "storage/machine/queue"
	return []Mutant{
		bug("fence-not-on-streams", "QUE-8", "the fence of a request on a stream is not checked",
			in("server/events").before("(Service) admit", "r.err = s.check()", "r.append.Fence = nil")),
		bug("fence-as-least", "QUE-8", "an append with a fence below the current one is stored",
			in("storage").replace("unmet", "*m.Fence != r.head.Fence", "*m.Fence > r.head.Fence")),
		bug("leased-before-expiry", "QUE-6", "a run is leased again although its lease lasts",
			queue.replace("(work) expiry(t)", "time.Duration(t)", "time.Duration(t)/2"),
			queue.replace("(w work) leaseRun(q, r)", "recordv1.LeaseReply_Lease{}; r.ExpiresAt",
				"r.ExpiresAt + (r.ExpiresAt - w.tx.Stamp())")),
		bug("slots-exceeded", "QUE-3", "one run more than maxRunning is leased",
			queue.replace("(queueState) canLease", "r < s.MaxRunning", "r <= s.MaxRunning")),
		bug("started-and-ready", "QUE-7", "a run that was started is leased again",
			queue.replace("(work) release", "Running", "Ready")),
		bug("failed-start-lost", "QUE-7", "a run whose start has failed is in no queue any more",
			queue.replace("(w work) release", "f = w.wait(q, r, t)", "w.tx.Delete(runKey(r.RunId))")),
		bug("request-not-unique", "QUE-2", "a request with another plan under the same key is answered as the first",
			queue.replace("against", "!bytes.Equal(k.PlanDigest, d)",
				"!bytes.Equal(k.PlanDigest, d) && k == nil")),
	}
}

// holds are bugs about clusters that were restored, and are held.
func holds() []Mutant {
	const storage, delivery, queue in = "storage", "server/subscriptions/delivery", "server/queue"
	return []Mutant{
		bug("hold-forgotten", "BUS-3, QUE-6", "the next entry, such as the first of a new leader, forgets the hold",
			storage.replace("advance", "a.Held", "false")).held(),
		bug("delivers-while-held", "BUS-3", "a leader delivers in a cluster that is held",
			delivery.replace("Start(o)", "o.Node.Store().WaitReleased(c)", "c.Err()")).held(),
		bug("leases-while-held", "QUE-6", "a leader leases runs in a cluster that is held",
			queue.replace("(s Service) LeaseRuns", "s.node.Store().Applied().Held", "s == nil")).held(),
	}
}

// subscriptions are bugs about what the cluster keeps of deliveries. The own tests of the machine
// compare it with a model and draw their cases.
func subscriptions() []Mutant {
	const subscription in = "storage/machine/subscription"
	return foundBy(subscription, "TestSubscriptionsBUS",
		bug("cursor-falls", "BUS-6", "a late settlement takes the cursor back",
			subscription.replace("(work) mayMove(f, t)", "t > f && p", "p")),
		bug("cursor-passes-unread", "BUS-6", "the cursor passes the entry of its own command",
			subscription.replace("(work) mayMove(f, t)", "t < p", "t <= p")),
		bug("cursor-ahead", "BUS-6", "a cursor begins ahead of the log",
			subscription.replace("(work) begin(m, p, n)", "n || a", "n")),
		bug("settled-late", "BUS-6", "a settlement of an earlier version has effect",
			subscription.replace("(work) settleItem", "s.Version != m.Version", "s.Version < m.Version")),
		bug("number-reused", "BUS-6", "a subscription that is made again has the number of the one that was deleted",
			subscription.after("(w work) delete", "rowKey(s.Number)", `
				if err := table.Set(w.tx, numbersKey(), &recordv1.SubscriptionNumbers{Last: s.Number - 1}); err != nil {
					return nil, err
				}`)),
		bug("owed-and-paid", "BUS-6", "a run that is owed and paid at once owes nothing",
			subscription.before("(staged) owe(u, m)", "s.put(owedKey(n, o.RunId), r, c)", `
				for _, runID := range m.Paid {
					if runID == o.RunId {
						r = nil
					}
				}`)),
		bug("seek-keeps-owed", "BUS-6", "runs owe events that lie before the cursor of a seek",
			subscription.remove("(work) seek", "s.OwedRuns = 0"),
			subscription.remove("(work) seek", "s.CursorVersion++")),
		bug("parked-still-redriven", "BUS-5", "a dead letter that fails again is delivered on and on",
			subscription.remove("(staged) park", "s.put(letterKey(n, redrivenRow, p), r, c)")),
		bug("delivered-not-redriven", "BUS-5", "a dead letter goes although it was not redriven",
			subscription.replace("(staged) park", "r, e := s.has(); if !r {}", "_ = r")),
		bug("discarded-twice", "BUS-5", "an event that is named twice counts as two dead letters",
			subscription.replace("(work) discard(s)", "e != nil || r == nil", "e != nil || r == nil && !s.Paused")),
		bug("letters-of-longer-run", "BUS-5", "dead letters are redriven of runs with a longer id too",
			subscription.replace("(work) choose", "f.Text(w.GetRunId())", "append(f, w.GetRunId()...)")),
		bug("deleted-letters-stay", "BUS-2", "the dead letters of a subscription stay when it is deleted",
			subscription.replace("(work) delete", "w.clear(letterTable, n)", "nil")),
	)
}
