package cluster

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	nodev1 "runlog/proto/node/v1"
	"runlog/raft"
	"runlog/server/cluster/admission"
)

// TestSigningKeyIsForMembers: a node that is no member yet may be given the cluster's state, and
// not its key, nor give one.
func TestSigningKeyIsForMembers(t *testing.T) {
	if open[nodev1.NodeService_FetchSigningKey_FullMethodName] || open[nodev1.NodeService_KeepSigningKey_FullMethodName] ||
		open[nodev1.NodeService_OpenCheckpoint_FullMethodName] || !admission.Seeding[nodev1.NodeService_OpenCheckpoint_FullMethodName] {
		t.Error("a node that is no member may call FetchSigningKey or KeepSigningKey, or a stranger OpenCheckpoint")
	}
}

// TestGive: a key is given to the intended members, and a majority of the voters must accept it.
func TestGive(t *testing.T) {
	voter := func(id string) raft.Member { return raft.Member{ID: id, Voter: true} }
	learner := func(id string) raft.Member { return raft.Member{ID: id} }
	three := []raft.Member{voter("a"), voter("b"), voter("c")}
	for name, c := range map[string]struct {
		all     []raft.Member
		to      string
		refuse  string
		refused string // the error's text; empty: none
	}{
		"alone":                         {all: three[:1], to: "a"},
		"all":                           {all: three, to: "a b c"},
		"a majority":                    {all: three, to: "a b c", refuse: "b"},
		"no majority":                   {all: three, to: "a b c", refuse: "b c", refused: "1 of 3 voters have the key; b: no; c: no"},
		"one of two":                    {all: three[:2], to: "a b", refuse: "b", refused: "1 of 2 voters have the key; b: no"},
		"half of four":                  {all: append(slices.Clone(three), voter("d")), to: "a b c d", refuse: "c d", refused: "2 of 4 voters have the key"},
		"one that is new":               {all: three, to: "a b"},
		"those that are new":            {all: three, to: "a", refused: "b: became a member during the change; c: became"},
		"learners do not count":         {all: []raft.Member{voter("a"), voter("b"), learner("c"), learner("d")}, to: "a b c d", refuse: "b", refused: "1 of 2 voters have the key"},
		"learners are not waited for":   {all: []raft.Member{voter("a"), voter("b"), learner("c")}, to: "a b c", refuse: "c"},
		"a leader that is not counted":  {all: []raft.Member{learner("a"), voter("b"), voter("c")}, to: "a b c", refuse: "c", refused: "1 of 2 voters have the key"},
		"the members are not known yet": {refused: "0 of 0 voters have the key"},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var asked []string
			err := give(t.Context(), c.all, strings.Fields(c.to), func(_ context.Context, m raft.Member) error {
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, m.ID)
				if slices.Contains(strings.Fields(c.refuse), m.ID) {
					return status.Error(codes.FailedPrecondition, "no")
				}
				return nil
			})
			if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%v, want %q", err, c.refused)
			}
			for _, id := range asked {
				if !slices.Contains(strings.Fields(c.to), id) {
					t.Errorf("%s was given the key", id)
				}
			}
		})
	}
}

// TestGiveWaits: giving a key does not wait for more than a majority, and at most a second.
func TestGiveWaits(t *testing.T) {
	all := []raft.Member{{ID: "a", Voter: true}, {ID: "b", Voter: true}, {ID: "c", Voter: true}}
	for silent, want := range map[string]time.Duration{"c": 0, "b c": signingKeyTimeout} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			err := give(t.Context(), all, []string{"a", "b", "c"}, func(ctx context.Context, m raft.Member) error {
				if slices.Contains(strings.Fields(silent), m.ID) {
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			})
			if took := time.Since(began); took != want || (err == nil) != (want == 0) {
				t.Errorf("silent are %s: %v after %s", silent, err, took)
			}
			if want > 0 && !strings.Contains(err.Error(), "deadline exceeded") {
				t.Error(err)
			}
		})
	}
}
