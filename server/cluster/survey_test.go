package cluster

import (
	"context"
	"fmt"
	"slices"
	"testing"

	nodev1 "runlog/proto/node/v1"
	"runlog/raft"
)

// TestGuestsOfAllMembers: any asked member shows the nodes that any member has invited, once, until
// they are members.
func TestGuestsOfAllMembers(t *testing.T) {
	members := []Surveyed{
		{Member: raft.Member{Address: "a:1"}, About: &nodev1.DescribeResponse{GuestAddresses: []string{"x:1", "b:1"}}},
		{Member: raft.Member{Address: "b:1"}, About: &nodev1.DescribeResponse{GuestAddresses: []string{"w:1", "x:1"}}},
		{Member: raft.Member{Address: "c:1"}, Err: context.DeadlineExceeded},
	}
	var got []string
	for _, g := range guestsOf(members) {
		got = append(got, g.Member.Address)
		if !g.Invited || g.Member.Voter {
			t.Errorf("%+v", g)
		}
	}
	if want := []string{"w:1", "x:1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := Explain(fmt.Errorf("asked: %w", context.DeadlineExceeded)), "no answer within 1s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
