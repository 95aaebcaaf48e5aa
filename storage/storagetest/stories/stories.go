package stories

import (
	"fmt"
	"strings"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
)

func with(e contract.Event, change func(*contract.Event)) contract.Event {
	change(&e)
	return e
}

func payload(text string) func(*contract.Event) {
	return func(e *contract.Event) { e.Payload = []byte(text) }
}

func otherID(e *contract.Event) { e.EventID[7]++ }

// sparseEvent is a 1.1 event that names nothing but its run and its key.
func sparseEvent(runID string, n int) contract.Event {
	return with(storagetest.Event(runID, n), func(e *contract.Event) {
		e.Contract = contract.Line11
		e.TenantID, e.ProjectID, e.EnvironmentID, e.PlanID, e.PlanVersion = "", "", "", "", ""
		e.Absent = contract.AbsentTenant | contract.AbsentProject | contract.AbsentEnvironment |
			contract.AbsentPlan | contract.AbsentPlanVersion
		e.KeyDerived, e.IdempotencyKey = false, fmt.Sprintf("key-%d", n)
	})
}

var stories = []example{
	{name: "APP-1 runSeq counts each run from 1", tell: func(s *story) {
		s.expect(s.append(storagetest.Events("a", 0, 3)...), "nnn")
		s.expect(s.append(storagetest.Event("b", 0)), "n")
		s.expect(s.append(storagetest.Event("a", 3)), "n")
	}},
	{name: "APP-3 a refused request stores nothing", tell: func(s *story) {
		s.append(storagetest.Event("a", 0))
		var err *storage.SequenceError
		s.refused(s.propose(conditional(7, storagetest.Events("a", 0, 5)...))[0], &err)
	}},
	{name: "APP-4 a retry of a successful conditional append succeeds", tell: func(s *story) {
		first := s.propose(conditional(0, storagetest.Events("a", 0, 2)...))[0]
		s.expect(first, "nn")
		s.expect(s.propose(conditional(0, storagetest.Events("a", 0, 2)...))[0], "dd")
	}},
	{name: "APP-4 one new event among duplicates meets the expectation", tell: func(s *story) {
		s.append(storagetest.Events("a", 0, 2)...)
		var err *storage.SequenceError
		s.refused(s.propose(conditional(0, storagetest.Events("a", 0, 3)...))[0], &err)
		if err.Expected != 0 || err.Last != 2 {
			s.t.Fatalf("conflict says %+v", err)
		}
		s.expect(s.propose(conditional(2, storagetest.Events("a", 0, 3)...))[0], "ddn")
	}},
	{name: "APP-4 two conditional appends in one proposal", tell: func(s *story) {
		o := s.propose(conditional(0, storagetest.Event("a", 0)), conditional(0, storagetest.Event("a", 1)), conditional(1, storagetest.Event("a", 2)))
		s.expect(o[0], "n")
		var err *storage.SequenceError
		s.refused(o[1], &err)
		s.expect(o[2], "n")
	}},
	{name: "APP-4 a new run is at 0", tell: func(s *story) {
		var err *storage.SequenceError
		s.refused(s.propose(conditional(1, storagetest.Event("a", 0)))[0], &err)
		s.expect(s.propose(conditional(0, storagetest.Event("a", 0)))[0], "n")
	}},
	{name: "APP-5 the stamp never goes back", tell: func(s *story) {
		s.proposeAt(storagetest.Epoch, appendOf(storagetest.Event("a", 0)))
		s.proposeAt(storagetest.Epoch-1e9, appendOf(storagetest.Event("a", 1)), appendOf(storagetest.Event("b", 0)))
		s.reopen()
		s.proposeAt(storagetest.Epoch-2e9, appendOf(storagetest.Event("a", 2)))
		o := s.proposeAt(storagetest.Epoch+5, appendOf(storagetest.Event("a", 3)))[0]
		if o.PersistedAt != storagetest.Epoch+5 {
			s.t.Fatalf("stamp %d, want %d", o.PersistedAt, storagetest.Epoch+5)
		}
	}},
	{name: "APP-5 a clock before 1970", tell: func(s *story) {
		s.proposeAt(-5, appendOf(storagetest.Event("a", 0)))
		s.proposeAt(0, appendOf(storagetest.Event("a", 1)))
	}},
	{name: "APP-6 a run stays where it is", tell: func(s *story) {
		s.append(storagetest.Event("a", 0))
		for _, stray := range []func(*contract.Event){
			func(e *contract.Event) { e.TenantID = "other" },
			func(e *contract.Event) { e.ProjectID = "other" },
			func(e *contract.Event) { e.EnvironmentID = "other" },
		} {
			var err *storage.ScopeError
			s.refused(s.append(with(storagetest.Event("a", 1), stray)), &err)
		}
		s.expect(s.append(storagetest.Event("a", 1)), "n")
	}},
	{name: "IDM-6 the answer to a duplicate stays the same", tell: func(s *story) {
		first := s.append(storagetest.Events("a", 0, 3)...)
		for range 2 {
			again := s.append(with(storagetest.Event("a", 1), otherID))
			s.expect(again, "d")
			got, want := again.Results[0], first.Results[1]
			if got.RunSeq != want.RunSeq || got.EventID != want.EventID || got.PersistedAt != want.PersistedAt {
				s.t.Fatalf("%+v, want %+v", got, want)
			}
			s.reopen()
		}
	}},
	{name: "IDM-6 two requests of one proposal", tell: func(s *story) {
		o := s.propose(appendOf(storagetest.Event("a", 0)), appendOf(with(storagetest.Event("a", 0), otherID), storagetest.Event("a", 1)), appendOf(storagetest.Event("a", 0)))
		s.expect(o[0], "n")
		s.expect(o[1], "dn")
		s.expect(o[2], "d")
	}},
	{name: "IDM-7 a duplicate of other content", tell: func(s *story) {
		s.append(storagetest.Event("a", 0))
		s.expect(s.append(with(storagetest.Event("a", 0), payload(`{"n":1}`))), "x")
		s.expect(s.append(with(storagetest.Event("a", 0), func(e *contract.Event) {
			e.EventID, e.EngineAttemptID, e.EmittedAt, e.EmittedBy = contract.EventID{1}, 9, 1, "someone"
		})), "d")
	}},
	{name: "IDM-7 a duplicate of the same meaning in other bytes", tell: func(s *story) {
		s.append(storagetest.Event("a", 0), sparseEvent("a", 1))
		o := s.append(with(storagetest.Event("a", 0), payload(`{ "n": 0.0 }`)), with(sparseEvent("a", 1), func(e *contract.Event) {
			e.Absent = 0
			e.TenantID, e.ProjectID, e.EnvironmentID, e.PlanID, e.PlanVersion = "tenant", "project", "prod", "plan", "v1"
		}), with(sparseEvent("a", 1), payload(`{"n":1e0}`)))
		if s.p.System == nil {
			s.expect(o, "ddd")
		} else {
			s.expect(o, "xxx") // for the edge to look at
		}
	}},
	{name: "IDM-7 two equal duplicates in a request, both unlike the stored event", tell: func(s *story) {
		s.append(storagetest.Event("a", 0))
		other := with(storagetest.Event("a", 0), payload(`{"n":1}`))
		s.expect(s.append(other, other, storagetest.Event("a", 0)), "xxd")
	}},
	{name: "SEC-8 the identity is recorded, and is no content", tell: func(s *story) {
		by := func(name, tokenID string, events ...contract.Event) storage.Outcome {
			r := appendOf(events...)
			r.Append.AppendedBy = contract.Author{Name: name, TokenID: tokenID}
			return s.propose(r)[0]
		}
		s.expect(by("worker", "1", storagetest.Events("a", 0, 2)...), "nn")
		s.expect(by("another", "", storagetest.Event("a", 1), storagetest.Event("a", 2)), "dn")
		s.expect(by("", "", storagetest.Event("a", 0), storagetest.Event("a", 3)), "dn")
		s.expect(by("worker", "2", storagetest.Event("a", 3), storagetest.Event("a", 4)), "dn")
		s.expect(by("worker", "1", storagetest.Event("a", 4), storagetest.Event("a", 4)), "dd")
	}},
	{name: "IDM-8 duplicates inside one request", tell: func(s *story) {
		o := s.append(storagetest.Event("a", 0), with(storagetest.Event("a", 0), otherID), storagetest.Event("a", 1), with(storagetest.Event("a", 1), payload(`{}`)), storagetest.Event("a", 0))
		s.expect(o, "ndnxd")
		if o.LastSeq != 2 || o.Results[4].EventID != o.Results[0].EventID {
			s.t.Fatalf("outcome %+v", o)
		}
	}},
	{name: "ENV-1 the first event names the scope", tell: func(s *story) {
		var err *storage.UnscopedError
		s.refused(s.append(sparseEvent("a", 0), storagetest.Event("a", 1)), &err)
		if len(err.Fields) != 3 {
			s.t.Fatalf("missing %v", err.Fields)
		}
		s.expect(s.append(storagetest.Event("a", 1), sparseEvent("a", 0)), "nn")
		s.expect(s.append(sparseEvent("a", 0)), "d")
	}},
	{name: "ENV-1 a creation names the scope", tell: func(s *story) {
		create := &storage.Creation{Scope: storage.Scope{TenantID: "t", ProjectID: "p", EnvironmentID: "e"}}
		s.expect(s.propose(storagetest.Request{Append: &storage.Append{RunID: "a", Create: create, Events: []contract.Event{sparseEvent("a", 0)}}})[0], "n")
	}},
	{name: "APP-12 CreateRun is idempotent", tell: func(s *story) {
		create := func(by string, events ...contract.Event) storagetest.Request {
			return storagetest.Request{Append: &storage.Append{RunID: "a", Events: events, Create: &storage.Creation{
				Scope:    storage.Scope{TenantID: "tenant", ProjectID: "project", EnvironmentID: "prod"},
				Metadata: storage.Metadata{TriggeredBy: by, Labels: map[string]string{"x": "1", "y": "2"}},
			}}}
		}
		s.expect(s.propose(create("someone", storagetest.Event("a", 0)))[0], "n")
		s.expect(s.propose(create("someone", storagetest.Event("a", 0)))[0], "d")
		var err *storage.RunExistsError
		s.refused(s.propose(create("someone else", storagetest.Event("a", 0)))[0], &err)
		s.refused(s.propose(create("someone", storagetest.Event("a", 0), storagetest.Event("a", 1)))[0], &err)
		if err.NewEvent != 2 {
			s.t.Fatalf("event %d is new", err.NewEvent)
		}
		s.append(storagetest.Event("a", 1))
		s.expect(s.propose(create("someone", storagetest.Event("a", 0), storagetest.Event("a", 1)))[0], "dd")
		s.reopen()
		s.expect(s.propose(create("someone"))[0], "")
		exclusive := create("someone")
		exclusive.Append.Exclusive = true
		s.refused(s.propose(exclusive)[0], &err)
	}},
	{name: "APP-12 a run that came to be by appends takes the metadata of the first CreateRun", tell: func(s *story) {
		s.append(storagetest.Event("a", 0))
		create := func(by string) storagetest.Request {
			return storagetest.Request{Append: &storage.Append{RunID: "a", Create: &storage.Creation{
				Scope:    storage.Scope{TenantID: "tenant", ProjectID: "project", EnvironmentID: "prod"},
				Metadata: storage.Metadata{TriggeredBy: by},
			}}}
		}
		s.expect(s.propose(storagetest.Request{SetRef: &storagetest.SetRef{RunID: "a", Ref: "ref"}})[0], "")
		s.expect(s.propose(create("someone"))[0], "")
		s.reopen()
		var err *storage.RunExistsError
		s.refused(s.propose(create("someone else"))[0], &err)
		s.expect(s.propose(create("someone"))[0], "")
	}},
	{name: "APP-12 the engine's reference is set once", tell: func(s *story) {
		set := func(run, ref string) storage.Outcome {
			return s.propose(storagetest.Request{SetRef: &storagetest.SetRef{RunID: run, Ref: ref}})[0]
		}
		var missing *storage.RunNotFoundError
		s.refused(set("a", "r1"), &missing)
		s.append(storagetest.Event("a", 0))
		s.expect(set("a", "r1"), "")
		s.expect(set("a", "r1"), "")
		s.reopen()
		var exists *storage.RunExistsError
		s.refused(set("a", "r2"), &exists)
	}},
	{name: "D6 bodies of other plans", tell: func(s *story) {
		plan := func(id, version string, n int) contract.Event {
			return with(storagetest.Event("a", n), func(e *contract.Event) {
				e.PlanID, e.PlanVersion = id, version
				e.IdempotencyKey = contract.DeriveKey(e.Contract, e.RunID, e.StepID, e.LogicalAttemptID, e.EngineAttemptID, e.Type, id, version)
			})
		}
		s.append(plan("p", "1", 0), plan("p", "2", 1), plan("q", "1", 2))
		s.append(plan("q", "1", 3), plan("p", "1", 4), sparseEvent("a", 5))
		s.append(sparseEvent("a", 6), plan("q", "2", 7))
	}},
	{name: "D6 a request of many blocks, a proposal of many chunks", tell: func(s *story) {
		var events []contract.Event
		for n := range 40 {
			text := strings.Repeat("word ", 1000)
			if n%3 == 0 {
				text = storagetest.Noise(uint64(n), 3000)
			}
			events = append(events, with(storagetest.Event("a", n), payload(fmt.Sprintf(`{"text":%q}`, text))))
		}
		s.append(events[10], events[20])
		s.propose(appendOf(events[:30]...), appendOf(storagetest.Event("b", 0)), appendOf(events...), appendOf(storagetest.Event("b", 1)))
	}},
	{name: "D7 a proposal without commands moves the stamp", tell: func(s *story) {
		s.propose()
		s.append(storagetest.Event("a", 0))
		s.propose()
	}},
}
