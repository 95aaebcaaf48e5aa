package stories

import (
	"fmt"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
)

func fenced(fence uint64, events ...contract.Event) storagetest.Request {
	r := appendOf(events...)
	r.Append.Fence = &fence
	return r
}

// lease raises a run's fence.
func (s *story) lease(runID string, fence uint64) storage.Outcome {
	s.t.Helper()
	return s.propose(storagetest.Request{Fence: &storagetest.SetFence{RunID: runID, Fence: fence}})[0]
}

// lost wants a request to be refused with the fence that it gave and the one that is current.
func (s *story) lost(o storage.Outcome, given, current uint64) {
	s.t.Helper()
	var err *storage.LeaseLostError
	if s.refused(o, &err); err.Given != given || err.Current != current {
		s.t.Fatalf("lease lost: %+v, want given %d, current %d", err, given, current)
	}
}

var fenceStories = []example{
	{name: "QUE-8 a run that was never leased has fence 0", tell: func(s *story) {
		s.lost(s.propose(fenced(1, storagetest.Event("a", 0)))[0], 1, 0)
		s.expect(s.propose(fenced(0, storagetest.Event("a", 0)))[0], "n")
		s.lost(s.propose(fenced(7, storagetest.Event("a", 1)))[0], 7, 0)
		s.reopen()
		s.expect(s.propose(fenced(0, storagetest.Event("a", 1)))[0], "n")
		s.expect(s.append(storagetest.Event("a", 2)), "n")
	}},
	{name: "QUE-8 duplicates are answered under any fence", tell: func(s *story) {
		s.append(storagetest.Events("a", 0, 3)...)
		s.expect(s.propose(fenced(9, storagetest.Events("a", 0, 3)...))[0], "ddd")
		s.lost(s.propose(fenced(9, storagetest.Events("a", 0, 4)...))[0], 9, 0)
		s.expect(s.propose(fenced(9, storagetest.Event("a", 2), storagetest.Event("a", 2)))[0], "dd")
	}},
	{name: "QUE-8 a lost lease comes before a sequence conflict", tell: func(s *story) {
		s.append(storagetest.Events("a", 0, 2)...)
		request := func(fence, last uint64, events ...contract.Event) storagetest.Request {
			r := fenced(fence, events...)
			r.Append.ExpectedLastSeq = &last
			return r
		}
		s.lost(s.propose(request(1, 7, storagetest.Event("a", 2)))[0], 1, 0)
		s.lost(s.propose(request(1, 2, storagetest.Event("a", 2)))[0], 1, 0)
		var conflict *storage.SequenceError
		s.refused(s.propose(request(0, 7, storagetest.Event("a", 2)))[0], &conflict)
		s.expect(s.propose(request(1, 7, storagetest.Event("a", 1)))[0], "d")
		s.expect(s.propose(request(0, 2, storagetest.Event("a", 2)))[0], "n")
	}},
	{name: "QUE-8 each request of a batch has its own fence", tell: func(s *story) {
		s.append(storagetest.Event("a", 0))
		o := s.propose(fenced(1, storagetest.Event("a", 1)), fenced(0, storagetest.Event("a", 2)), fenced(1, storagetest.Event("b", 0)), fenced(0, storagetest.Event("b", 0)))
		s.lost(o[0], 1, 0)
		s.expect(o[1], "n")
		s.lost(o[2], 1, 0)
		s.expect(o[3], "n")
	}},
	{name: "QUE-6 a fence only rises", leases: true, tell: func(s *story) {
		var missing *storage.RunNotFoundError
		s.refused(s.lease("a", 1), &missing)
		s.append(storagetest.Event("a", 0))
		s.lost(s.lease("a", 0), 0, 0)
		s.expect(s.lease("a", 3), "")
		s.lost(s.lease("a", 3), 3, 3)
		s.lost(s.lease("a", 2), 2, 3)
		s.reopen()
		s.expect(s.lease("a", ^uint64(0)), "")
		s.lost(s.lease("a", 4), 4, ^uint64(0))
	}},
	{name: "QUE-8 only the current fence may write", leases: true, tell: func(s *story) {
		s.append(storagetest.Event("a", 0))
		s.append(storagetest.Event("b", 0))
		s.lease("a", 5)
		for round, n := range []int{1, 3, 5} {
			s.lost(s.propose(fenced(0, storagetest.Event("a", n)))[0], 0, 5)
			s.lost(s.propose(fenced(4, storagetest.Event("a", n)))[0], 4, 5)
			s.lost(s.propose(fenced(6, storagetest.Event("a", n)))[0], 6, 5)
			s.expect(s.propose(fenced(5, storagetest.Event("a", n)))[0], "n")
			// without a fence, a request does not depend on the lease
			s.expect(s.append(storagetest.Event("a", n+1)), "n")
			s.expect(s.propose(fenced(4, storagetest.Event("a", n)))[0], "d")
			s.expect(s.propose(fenced(0, storagetest.Event("b", round+1)))[0], "n")
			s.reopen()
		}
		s.lease("a", 6)
		s.lost(s.propose(fenced(5, storagetest.Event("a", 9)))[0], 5, 6)
		s.expect(s.propose(fenced(6, storagetest.Event("a", 9)))[0], "n")
	}},
	{name: "QUE-8 a worker that was replaced cannot write, whatever it retries", leases: true, tell: func(s *story) {
		for n := range 3 {
			run := fmt.Sprintf("run-%d", n)
			s.append(storagetest.Event(run, 0))
			s.lease(run, 1)
			s.expect(s.propose(fenced(1, storagetest.Events(run, 1, 2)...))[0], "nn")
			s.lease(run, 2)
			s.expect(s.propose(fenced(1, storagetest.Events(run, 1, 2)...))[0], "dd")
			s.lost(s.propose(fenced(1, storagetest.Events(run, 1, 3)...))[0], 1, 2)
			s.expect(s.propose(fenced(2, storagetest.Events(run, 1, 3)...))[0], "ddn")
		}
	}},
}
