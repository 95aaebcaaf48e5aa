package stories

import (
	"errors"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
)

// set is an operation that sets a row.
func set(key, value string) storagetest.Request {
	return storagetest.Request{Write: &storagetest.Write{Rows: []storagetest.WriteRow{{Key: key, Value: new(value)}}}}
}

// refuse is an operation that is refused after it has written.
func refuse() storagetest.Request {
	return storagetest.Request{Write: &storagetest.Write{Rows: []storagetest.WriteRow{{Key: "T-refused", Value: new("x")}}, Want: &storagetest.WriteRow{Key: "T-refused"}}}
}

// together proposes one compound command.
func (s *story) together(operations ...storagetest.Request) storage.Outcome {
	s.t.Helper()
	return s.propose(storagetest.Request{Compound: operations})[0]
}

// none wants a command to have no effect because of one operation.
func (s *story) none(o storage.Outcome, operation int) {
	s.t.Helper()
	own := o.Answers[operation].Err
	if o.Err == nil || !errors.Is(own, o.Err) || !errors.Is(o.Err, own) { // neither wraps the other
		s.t.Fatalf("%v, answers %+v: want operation %d to be refused", o.Err, o.Answers, operation)
	}
	for i, a := range o.Answers {
		var not *storage.NotAppliedError
		if i != operation && (!errors.As(a.Err, &not) || not.Operation != operation || a.Results != nil || a.Reply != nil) {
			s.t.Fatalf("answer %d is %+v, because of operation %d", i, a, operation)
		}
	}
}

// compoundStories are those that no call of the API can tell.
var compoundStories = []example{
	{name: "IDM-5 an event that must be new is refused under the key of another", tell: func(s *story) {
		onlyNew := func(events ...contract.Event) storagetest.Request {
			r := appendOf(events...)
			r.Append.OnlyNew = true
			return r
		}
		taken := func(o storage.Outcome, index int, runSeq uint64) {
			s.t.Helper()
			var err *storage.KeyTakenError
			if s.refused(o, &err); err.Index != index || err.RunSeq != runSeq {
				s.t.Fatalf("refused with %+v, want event %d and runSeq %d", err, index, runSeq)
			}
		}
		s.expect(s.propose(onlyNew(storagetest.Events("a", 0, 2)...))[0], "nn")
		taken(s.propose(onlyNew(storagetest.Event("a", 1)))[0], 0, 2)
		taken(s.propose(onlyNew(storagetest.Event("a", 7), storagetest.Event("a", 1)))[0], 1, 2)
		taken(s.propose(onlyNew(storagetest.Event("b", 0), storagetest.Event("b", 0)))[0], 1, 1)
		s.expect(s.append(storagetest.Event("a", 7)), "n") // Nothing of it was stored.

		// The condition sees what the command has done before, and takes it back.
		o := s.together(set("T1", "x"), appendOf(storagetest.Event("a", 8)), onlyNew(storagetest.Event("a", 9), storagetest.Event("a", 8)))
		s.none(o, 2)
		taken(o, 1, 4)
		s.expect(s.append(storagetest.Events("a", 8, 2)...), "nn")

		// What the run is expected to be comes first: then the answer is about that run.
		stale := onlyNew(storagetest.Event("a", 1))
		stale.Append.ExpectedLastSeq = new(uint64(4))
		var conflict *storage.SequenceError
		s.refused(s.propose(stale)[0], &conflict)
	}},
	{name: "APP-3 one refused operation, in each place, refuses all", tell: func(s *story) {
		create := &storage.Creation{Scope: storage.Scope{TenantID: "tenant", ProjectID: "project", EnvironmentID: "prod"}}
		good := []storagetest.Request{
			appendOf(storagetest.Events("a", 0, 3)...), set("T1", "x"), appendOf(storagetest.Events("b", 0, 2)...),
			{Append: &storage.Append{RunID: "c", Create: create}}, {SetRef: &storagetest.SetRef{RunID: "c", Ref: "ref"}}, appendOf(storagetest.Events("a", 2, 3)...),
		}
		s.append(storagetest.Event("b", 0))
		for place := range len(good) + 1 {
			var ops []storagetest.Request
			ops = append(ops, good[:place]...)
			ops = append(ops, refuse())
			ops = append(ops, good[place:]...)
			o := s.propose(appendOf(storagetest.Event("b", 10+place)), storagetest.Request{Compound: ops}, appendOf(storagetest.Event("b", 20+place)), set("T2", "y"))
			s.none(o[1], place)
			s.expect(o[0], "n")
			s.expect(o[2], "n")
		}
		o := s.together(good...)
		if o.Err != nil {
			s.t.Fatal(o.Err)
		}
		if a := o.Answers[5]; a.LastSeq != 5 || !a.Results[0].Duplicate || a.Results[1].Duplicate {
			s.t.Fatalf("answer %+v", a)
		}
	}},
	{name: "APP-3 an append that is refused takes the others along", tell: func(s *story) {
		s.append(storagetest.Events("a", 0, 2)...)
		var sequence *storage.SequenceError
		o := s.together(set("T1", "x"), appendOf(storagetest.Event("b", 0)), conditional(7, storagetest.Event("a", 2)))
		s.none(o, 2)
		if !errors.As(o.Err, &sequence) || sequence.Last != 2 {
			s.t.Fatalf("%v", o.Err)
		}
		o = s.together(appendOf(storagetest.Event("a", 2)), conditional(2, storagetest.Event("a", 3)))
		s.none(o, 1)
		if !errors.As(o.Err, &sequence) || sequence.Last != 3 { // after the first operation
			s.t.Fatalf("%v", o.Err)
		}
		var scope *storage.ScopeError
		o = s.together(appendOf(storagetest.Event("c", 0)), appendOf(with(storagetest.Event("c", 1), func(e *contract.Event) { e.TenantID = "other" })))
		if s.none(o, 1); !errors.As(o.Err, &scope) {
			s.t.Fatalf("%v", o.Err)
		}
		s.expect(s.append(storagetest.Event("a", 2), storagetest.Event("a", 3)), "nn")
	}},
	{name: "APP-4 an expectation sees the operation before it", tell: func(s *story) {
		o := s.together(conditional(0, storagetest.Event("a", 0)), conditional(1, storagetest.Event("a", 1)))
		if o.Err != nil || o.Answers[1].LastSeq != 2 {
			s.t.Fatalf("%+v", o)
		}
	}},
	{name: "IDM-8 duplicates in two operations of a command", tell: func(s *story) {
		for range 2 {
			o := s.together(appendOf(storagetest.Event("a", 0), storagetest.Event("a", 1)), appendOf(with(storagetest.Event("a", 1), otherID), storagetest.Event("a", 2)), appendOf(with(storagetest.Event("a", 0), payload(`{}`))))
			if o.Err != nil {
				s.t.Fatal(o.Err)
			}
			second, third := o.Answers[1].Results, o.Answers[2].Results
			if !second[0].Duplicate || !second[0].SameContent || second[0].RunSeq != 2 || !third[0].Duplicate || third[0].SameContent {
				s.t.Fatalf("%+v, %+v", second, third)
			}
			s.reopen()
		}
	}},
	{name: "IDM-6 what a refused command had stored is new", tell: func(s *story) {
		for range 3 { // its receipts may be in memory, on disk, or not looked for
			s.none(s.together(appendOf(storagetest.Events("a", 0, 40)...), refuse()), 1)
			s.reopen()
			s.append(storagetest.Event("a", 100))
		}
		o := s.propose(storagetest.Request{Compound: []storagetest.Request{appendOf(storagetest.Events("a", 0, 3)...), appendOf(storagetest.Events("a", 0, 30)...), refuse()}}, appendOf(storagetest.Events("a", 0, 2)...))
		s.none(o[0], 2)
		s.expect(o[1], "nn")
		s.expect(s.append(storagetest.Events("a", 0, 3)...), "ddn")
	}},
	{name: "APP-12 an operation sees the run that one before it has made", tell: func(s *story) {
		at := func(last uint64) storagetest.Request {
			return storagetest.Request{Write: &storagetest.Write{RunID: "a", LastSeq: last}}
		}
		o := s.together(at(0), appendOf(storagetest.Events("a", 0, 2)...), at(2), storagetest.Request{SetRef: &storagetest.SetRef{RunID: "a", Ref: "ref"}}, appendOf(storagetest.Event("a", 2)), at(3))
		if o.Err != nil {
			s.t.Fatal(o.Err)
		}
		var exists *storage.RunExistsError
		o = s.together(appendOf(storagetest.Event("a", 3)), storagetest.Request{SetRef: &storagetest.SetRef{RunID: "a", Ref: "other"}})
		if s.none(o, 1); !errors.As(o.Err, &exists) {
			s.t.Fatal(o.Err)
		}
		s.none(s.together(appendOf(storagetest.Event("b", 0)), storagetest.Request{SetRef: &storagetest.SetRef{RunID: "b", Ref: "ref"}}, refuse()), 2)
		var missing *storage.RunNotFoundError
		s.refused(s.propose(storagetest.Request{SetRef: &storagetest.SetRef{RunID: "b", Ref: "ref"}})[0], &missing)
	}},
	{name: "D11 a machine reads what it wrote", tell: func(s *story) {
		del := storagetest.Request{Write: &storagetest.Write{Rows: []storagetest.WriteRow{{Key: "T1"}, {Key: "T9"}}}}
		o := s.propose(set("T1", "a"), storagetest.Request{Compound: []storagetest.Request{set("Yx1", ""), del, set("T2", "b")}}, set("T1", "c"), del)
		for i, want := range []string{`"T1"="a" `, ``, `"T1"="c" "T2"="b" "Yx1"="" `, `"T2"="b" "Yx1"="" `} {
			if i != 1 && string(o[i].Answers[0].Reply) != want {
				s.t.Fatalf("%d: %s", i, o[i].Answers[0].Reply)
			}
		}
		s.reopen()
		var refused *storagetest.RefusedError
		s.refused(s.propose(storagetest.Request{Write: &storagetest.Write{Want: &storagetest.WriteRow{Key: "T2"}}})[0], &refused)
	}},
	{name: "D6 compound commands of many blocks and chunks", tell: func(s *story) {
		var events []contract.Event
		for n := range 40 {
			events = append(events, with(storagetest.Event("a", n), payload(`{"noise":"`+storagetest.Noise(uint64(n), 3000)+`"}`)))
		}
		s.propose(appendOf(events[:5]...), storagetest.Request{Compound: []storagetest.Request{appendOf(events[5:20]...), appendOf(storagetest.Event("b", 0)), refuse()}},
			storagetest.Request{Compound: []storagetest.Request{appendOf(events[10:30]...), appendOf(storagetest.Event("b", 1)), appendOf(events...)}}, appendOf(storagetest.Event("b", 2)))
	}},
}
