package mutants

import (
	"slices"
	"time"
)

// clientSide are bugs of the product's Go client, through which most clients of the simulator
// append.
func clientSide() []Mutant {
	const client in = "client"
	streams := func(m Mutant) Mutant { // They break streams of clients, and change the leader.
		return m.under(500*time.Millisecond, "client-reset", "client-slow", "kill", "transfer")
	}
	return []Mutant{
		streams(bug("result-lost-on-reconnect", "APP-10",
			"what was in flight when a stream of the Go client breaks counts as not stored",
			client.replace("(nodeStream) mayHaveTakenEffect(e)", "r == nil && len(h) > 0 || e.unknown()",
				"r != nil && len(h) > 0"))),
		streams(bug("order-lost-on-reconnect", "APP-10",
			"the Go client sends what waits for a run before what it has to send again",
			client.after("(queue) settled(l)", "l.remove(c); a = true", `
				if l.last != c {
					l.remove(c)
					c.prev, l.last.next, l.last = l.last, c, c
				}`))),
		streams(bug("order-lost-over-leader-change", "APP-10",
			"what a node has refused because it does not lead goes behind what the Go client has waiting for the run",
			client.before("(Appender) again(r, e)", "a.delay()", `
				if c := r.first; c != r.last && (e.Reason == ReasonNotLeader || e.Reason == ReasonNoLeader) {
					r.remove(c)
					c.prev, r.last.next, r.last = r.last, c, c
				}`))),
		bug("results-shifted", "APP-3", "the calls that share a message of the Go client get each other's results",
			client.replace("(lane) answer", "r[:c.events:c.events]", "r[len(r)-c.events:]"),
			client.replace("(lane) answer", "r[c.events:]", "r[:len(r)-c.events]")),
	}
}

// kept are bugs about what waits on the disk of a client. The simulator's clients have no outbox;
// the tests of its packages look for these.
func kept() []Mutant {
	const outbox, writer in = "client/outbox", "client/writer"
	return slices.Concat(foundBy(outbox, "TestModel",
		bug("outbox-cut-too-far", "APP-10",
			"what removes an unfinished write from the outbox takes the whole record before it too",
			outbox.after("(s scanner) tail", "s.recovery.Torn", `
				if n := len(s.index.order); n > 0 && s.recovery.Torn > 0 {
					s.end = s.index.order[n-1].offset
				}`)),
		bug("outbox-done-as-mark", "APP-10",
			"a record that is done takes the earlier records from the outbox too, at the next start",
			outbox.replace("(scanner) apply", "_ = s.index.remove(i, pending) || r", `
				for ; i > 0; i-- {
					_ = s.index.remove(i, pending) || r
				}`)),
		bug("outbox-no-fsync", "APP-10", "the outbox acknowledges a record that is not synced",
			outbox.replace("(w writer) append(b, s)", "w.unsynced = true; s", "false")),
		bug("outbox-copy-not-synced", "APP-10", "a smaller file takes the place of the outbox before it is synced",
			outbox.remove("(writer) replace", "f.Sync()")),
	), foundBy(outbox, "TestDrainKeepsOrder",
		bug("outbox-drained-out-of-order", "APP-10", "several goroutines send the records of one run",
			outbox.replace("(Outbox) distribute", "maphash.String(s, r.Request.GetRunId())",
				`(maphash.String(s, "")+r.ID)`)),
	), foundBy(writer, "TestWriterModel",
		bug("outbox-overtaken", "APP-10", "an event is sent while earlier ones of its run wait in the outbox",
			writer.replace("(Writer) WriteRequest(c, r)", "w.backlogOf() != nil", "r == nil"),
			writer.replace("(Writer) WriteRequest", "w.await()", "error(nil)")),
	))
}
