// Package stories tells a system under test stories, one a rule of the contract: short sequences of
// proposals whose outcomes are known. Workloads of storagetest are the drawn counterpart.
package stories

import (
	"errors"
	"slices"
	"testing"

	"runlog/proto/contract"
	"runlog/storage"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// example is a story in proposals; both tell the same, and it ends as expected.
type example struct {
	name   string
	tell   func(*story)
	leases bool // it needs a system that raises fences
}

// story drives a pair and stops the test at the first difference.
type story struct {
	t     *testing.T
	p     *storagetest.Pair
	clock int64
}

func (s *story) propose(requests ...storagetest.Request) []storage.Outcome {
	s.t.Helper()
	s.clock += 1e6
	return s.proposeAt(storagetest.Epoch+s.clock, requests...)
}

func (s *story) proposeAt(clock int64, requests ...storagetest.Request) []storage.Outcome {
	s.t.Helper()
	outcomes, err := s.p.Propose(clock, requests...)
	if err == nil {
		err = s.p.Check()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return outcomes
}

func (s *story) append(events ...contract.Event) storage.Outcome {
	s.t.Helper()
	return s.propose(appendOf(events...))[0]
}

func (s *story) reopen() {
	s.t.Helper()
	if err := errors.Join(s.p.Reopen(), s.p.Check()); err != nil {
		s.t.Fatal(err)
	}
}

// expect wants every result to be a duplicate or not, as one letter each says: n new, d duplicate
// of the same content, x duplicate of other content.
func (s *story) expect(o storage.Outcome, letters string) {
	s.t.Helper()
	got := make([]byte, 0, len(o.Results))
	for _, r := range o.Results {
		switch {
		case !r.Duplicate:
			got = append(got, 'n')
		case r.SameContent:
			got = append(got, 'd')
		default:
			got = append(got, 'x')
		}
	}
	if o.Err != nil || string(got) != letters {
		s.t.Fatalf("results %s, error %v; want %s", got, o.Err, letters)
	}
}

func (s *story) refused(o storage.Outcome, as any) {
	s.t.Helper()
	if len(o.Results) > 0 || o.Err == nil || !errors.As(o.Err, as) {
		s.t.Fatalf("outcome %+v, want an error of %T", o, as)
	}
}

func appendOf(events ...contract.Event) storagetest.Request {
	return storagetest.Request{Append: &storage.Append{RunID: events[0].RunID, Events: events}}
}

func conditional(last uint64, events ...contract.Event) storagetest.Request {
	r := appendOf(events...)
	r.Append.ExpectedLastSeq = &last
	return r
}

// Tell tells a system the stories, one a rule, each in a bubble of fake time.
func Tell(t *testing.T, open storagetest.Factory) {
	examples(t, slices.Concat(stories, fenceStories, recurringStories, compoundStories), func(t *testing.T) *storagetest.Pair { return storagetest.NewPair(open(t)) })
}

func examples(t *testing.T, stories []example, open func(t *testing.T) *storagetest.Pair) {
	for _, e := range stories {
		t.Run(e.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := &story{t: t, p: open(t)}
				if e.leases && !storagetest.Leases(s.p.System) {
					t.Skip("the system has no leases")
				}
				e.tell(s)
				s.reopen()
				if err := s.p.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
		})
	}
}

// TellRemote tells a node the stories that Tell tells a store, but for those that no API can carry.
// The node is on a network of the bubble's.
func TellRemote(t *testing.T, open storagetest.RemoteFactory) {
	examples(t, slices.Concat(stories, fenceStories, recurringStories), func(t *testing.T) *storagetest.Pair { return storagetest.NewRemotePair(open(t, t)) })
}
