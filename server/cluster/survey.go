package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	nodev1 "runlog/proto/node/v1"
	"runlog/raft"
)

// Surveyed is one member's answer about itself.
type Surveyed struct {
	Member raft.Member
	// Invited: the node was invited and is not a member yet.
	Invited bool
	// About is the answer; nil: none, because of Err.
	About *nodev1.DescribeResponse
	Err   error
	// Offset is how far its clock is ahead of this node's, as precise as the duration of the call
	// allows.
	Offset time.Duration

	read time.Time // when its clock was read, approximately
}

// Clock returns what its clock shows now, in nanoseconds since 1970. It does not depend on this
// node's clock.
func (s *Surveyed) Clock() int64 { return s.About.Clock + int64(time.Since(s.read)) }

// Survey is the state of the cluster as this node sees it.
type Survey struct {
	Term     uint64
	LeaderID string // in Raft; empty: none
	// Members in the order of joining, then invited nodes.
	Members []Surveyed
	// Tolerance is how many voters may fail before the cluster takes no more appends.
	Tolerance int
	// Confirmed reports whether a majority of the voters confirmed the leader during the survey.
	// LeaderID alone may be a node that has been dead for an election timeout.
	Confirmed bool
}

// Survey asks every member how it is, all at once.
func (c *Cluster) Survey(ctx context.Context) (*Survey, error) {
	r := c.running.Load()
	if r == nil {
		return nil, ErrNoLeader
	}
	s := &Survey{Term: r.node.Term()}
	_, s.LeaderID = r.node.Leader()
	// until it is committed that a new one votes, no other can be spared
	members, err := r.node.CommittedMembers()
	if err != nil {
		return nil, err
	}
	for _, m := range members {
		s.Members = append(s.Members, Surveyed{Member: m})
	}
	var confirming sync.WaitGroup
	confirming.Go(func() { s.Confirmed = c.confirmLeader(ctx, r) })
	c.surveyAll(ctx, s.Members)
	confirming.Wait()
	guests := guestsOf(s.Members)
	c.surveyAll(ctx, guests)
	s.Members = append(s.Members, guests...)
	voters, up := 0, 0
	for i := range s.Members {
		if m := &s.Members[i]; m.Member.Voter {
			voters++
			if m.Err == nil {
				up++
			}
		}
	}
	s.Tolerance = max(0, up-(voters/2+1))
	return s, nil
}

// confirmLeader reports whether a majority confirms the leader now.
func (c *Cluster) confirmLeader(ctx context.Context, r *running) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	leadership, err := c.Leader()
	if err != nil {
		return false
	}
	if leadership.Link != nil {
		_, err = c.ReadPosition(ctx, leadership)
	} else {
		err = r.node.ConfirmLeader(ctx)
	}
	return err == nil
}

// AwaitConfirmed returns when a majority confirms a leader, or when the context ends.
func (c *Cluster) AwaitConfirmed(ctx context.Context) {
	for r := c.running.Load(); ctx.Err() == nil && !c.confirmLeader(ctx, r); {
		select {
		case <-time.After(leaderStep):
		case <-ctx.Done():
		}
	}
}

// surveyAll asks all of them at once.
func (c *Cluster) surveyAll(ctx context.Context, members []Surveyed) {
	var asked sync.WaitGroup
	for i := range members {
		asked.Go(func() { c.survey(ctx, &members[i]) })
	}
	asked.Wait()
}

func (c *Cluster) survey(ctx context.Context, s *Surveyed) {
	if s.Member.ID == c.selfID() {
		s.About = c.describe()
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	k, err := c.links.to(s.Member.ID, s.Member.Address)
	if err != nil {
		s.Err = err
		return
	}
	sent := time.Now()
	if s.About, s.Err = k.describe(ctx); s.Err != nil {
		return
	}
	s.read = sent.Add(time.Since(sent) / 2)
	s.Offset = time.Duration(s.Clock() - c.opts.Clock().UnixNano())
	if s.Invited {
		s.Member.ID = s.About.RaftId
	}
}

// AskVoters asks the other voters how they are. It returns the number of all voters, and those that
// answered before the context ended.
func (c *Cluster) AskVoters(ctx context.Context) (voters int, answered []Surveyed) {
	r := c.running.Load()
	if r == nil {
		return 0, nil
	}
	for _, m := range r.node.Members() {
		if m.Voter {
			voters++
		}
		if m.Voter && m.ID != c.selfID() {
			answered = append(answered, Surveyed{Member: m})
		}
	}
	c.surveyAll(ctx, answered)
	return voters, slices.DeleteFunc(answered, func(s Surveyed) bool { return s.Err != nil })
}

// guestsOf are the invited nodes that are not members yet. Each member knows the nodes that it has
// invited.
func guestsOf(members []Surveyed) []Surveyed {
	var addresses []string
	for i := range members {
		addresses = append(addresses, members[i].About.GetGuestAddresses()...)
	}
	slices.Sort(addresses)
	var guests []Surveyed
	for _, address := range slices.Compact(addresses) {
		if !slices.ContainsFunc(members, func(m Surveyed) bool { return m.Member.Address == address }) {
			guests = append(guests, Surveyed{Member: raft.Member{Address: address}, Invited: true})
		}
	}
	return guests
}

// guests are the addresses of nodes that this one has invited and that are not members yet.
func (c *Cluster) guests(members []raft.Member) []string {
	c.invited.mu.Lock()
	defer c.invited.mu.Unlock()
	for _, m := range members {
		delete(c.invited.until, m.Address)
	}
	maps.DeleteFunc(c.invited.until, func(_ string, until time.Time) bool { return time.Now().After(until) })
	return slices.Sorted(maps.Keys(c.invited.until))
}

// Explain is an error of a survey as people read it.
func Explain(err error) string {
	if status.Code(err) == codes.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("no answer within %v", askTimeout)
	}
	return explain(err)
}
