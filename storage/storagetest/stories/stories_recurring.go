package stories

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
)

// caused is an event of a type that recurs, whose attempt the authority assigns. Its eventId is of
// its type and cause.
func caused(typ, cause string) contract.Event {
	return with(storagetest.Event("a", 0), func(e *contract.Event) {
		id := fnv.New64a()
		fmt.Fprint(id, typ, "/", cause)
		binary.BigEndian.PutUint64(e.EventID[8:], id.Sum64())
		e.Type, e.StepID, e.CausedBySignalID, e.AttemptAssigned = typ, "", cause, true
	})
}

// taking is an event of line 1.1 under the key of an attempt of a type that recurs.
func taking(typ string, attempt uint32) contract.Event {
	return with(storagetest.Event("a", int(attempt)), func(e *contract.Event) {
		other := with(caused(typ, ""), func(e *contract.Event) { e.SetAttempt(attempt) })
		e.Contract, e.KeyDerived, e.IdempotencyKey = contract.Line11, false, other.IdempotencyKey
	})
}

// recur appends events, after their attempts are assigned as an edge does it.
func (s *story) recur(events ...contract.Event) storage.Outcome {
	s.t.Helper()
	r := appendOf(events...)
	s.p.Model.AssignAttempts(r.Append)
	return s.propose(r)[0]
}

// attempts wants an outcome with these attempts.
func (s *story) attempts(o storage.Outcome, results string, want ...uint32) {
	s.t.Helper()
	s.expect(o, results)
	for i := range want {
		if got := o.Results[i].Attempt; got != want[i] {
			s.t.Fatalf("event %d has attempt %d, want %d", i, got, want[i])
		}
	}
}

var recurringStories = []example{
	{name: "IDM-10 the second pause is a second event, and retries of both are duplicates", tell: func(s *story) {
		first, second := caused(contract.RunPaused, "s1"), caused(contract.RunPaused, "s2")
		s.attempts(s.recur(first), "n", 1)
		s.attempts(s.recur(second), "n", 2)
		s.attempts(s.recur(first), "d", 1)
		s.reopen()
		s.attempts(s.recur(second), "d", 2)
		s.attempts(s.recur(second, caused(contract.RunPaused, "s3"), first), "dnd", 2, 3, 1)
	}},
	{name: "IDM-10 each type counts for itself", tell: func(s *story) {
		s.attempts(s.recur(caused(contract.SignalAccepted, "s1"), caused(contract.RunPaused, "s1")), "nn", 1, 1)
		s.attempts(s.recur(caused(contract.SignalAccepted, "s2"), caused(contract.RunResumed, "s2")), "nn", 2, 1)
		s.attempts(s.recur(caused(contract.SignalRejected, "s3")), "n", 1)
	}},
	{name: "IDM-10 a cause twice in one request is one event", tell: func(s *story) {
		s.attempts(s.recur(caused(contract.RunPaused, "s1"), caused(contract.RunPaused, "s1")), "nd", 1, 1)
	}},
	{name: "IDM-10 a cause in the payload is the same cause", tell: func(s *story) {
		s.attempts(s.recur(caused(contract.RunPaused, "s1")), "n", 1)
		inside := with(caused(contract.RunPaused, ""), payload(`{"signalId":"s1"}`))
		s.attempts(s.recur(inside), "x", 1)
		s.attempts(s.recur(with(inside, payload(`{"signalId":"s\u0032"}`))), "n", 2)
		s.attempts(s.recur(caused(contract.RunPaused, "s2")), "x", 2)
	}},
	{name: "IDM-10 attempts that producers name count too", tell: func(s *story) {
		named := with(caused(contract.RunPaused, "s1"), func(e *contract.Event) {
			e.AttemptAssigned = false
			e.SetAttempt(7)
		})
		s.expect(s.append(named), "n")
		s.attempts(s.recur(caused(contract.RunPaused, "s1")), "d", 7)
		s.attempts(s.recur(caused(contract.RunPaused, "s2")), "n", 8)
		s.attempts(s.recur(named, caused(contract.RunPaused, "s3")), "dn", 0, 9)
	}},
	{name: "IDM-10 an attempt whose key another event has is left out", tell: func(s *story) {
		s.expect(s.append(taking(contract.RunPaused, 1), taking(contract.RunPaused, 3)), "nn")
		s.attempts(s.recur(caused(contract.RunPaused, "s1")), "n", 2)
		s.attempts(s.recur(taking(contract.RunPaused, 4), caused(contract.RunPaused, "s2"), caused(contract.RunPaused, "s1")), "nnd", 0, 5, 2)
		s.reopen()
		s.attempts(s.recur(caused(contract.RunPaused, "s2")), "d", 5)
	}},
	{name: "IDM-10 attempts from 2^31 on do not count", tell: func(s *story) {
		named := func(attempt uint32) contract.Event {
			return with(caused(contract.RunPaused, ""), func(e *contract.Event) {
				e.AttemptAssigned = false
				e.SetAttempt(attempt)
			})
		}
		s.attempts(s.recur(named(1<<32-1), caused(contract.RunPaused, "s1")), "nn", 0, 1)
		s.expect(s.append(named(1<<31)), "n")
		s.attempts(s.recur(caused(contract.RunPaused, "s2")), "n", 2)
		s.expect(s.append(named(1<<31-2)), "n")
		s.attempts(s.recur(caused(contract.RunPaused, "s3")), "n", 1<<31-1)
	}},
	{name: "IDM-10 a cause is of its run", tell: func(s *story) {
		s.attempts(s.recur(caused(contract.RunPaused, "s1")), "n", 1)
		other := with(caused(contract.RunPaused, "s1"), func(e *contract.Event) { e.RunID = "b" })
		s.attempts(s.recur(other), "n", 1)
	}},
	{name: "IDM-10 a cause stays the same event whatever else the retry says", tell: func(s *story) {
		step := func(name string) contract.Event {
			return with(caused(contract.SignalAccepted, "s1"), func(e *contract.Event) { e.StepID = name })
		}
		s.attempts(s.recur(step("one")), "n", 1)
		s.attempts(s.recur(step("two")), "x", 1)
		s.reopen()
		s.attempts(s.recur(step("two"), caused(contract.SignalAccepted, "s2")), "xn", 1, 2)
	}},
}
