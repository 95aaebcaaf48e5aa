package cluster

import (
	"context"
	"sync"
	"time"

	nodev1 "runlog/proto/node/v1"
	"runlog/raft"
)

// Surveyed is what one member said of itself when it was asked.
type Surveyed struct {
	Member raft.Member
	// Invited says that the node was invited and is no member yet.
	Invited bool
	// About is what it said; nil: nothing, because of Err.
	About *nodev1.DescribeResponse
	Err   error
	// Offset is how far its clock is ahead of this node's, as far as the time that the answer took lets that be told.
	Offset time.Duration
}

// Survey is the state of the cluster as this node sees it.
type Survey struct {
	Term     uint64
	LeaderID string // in Raft; empty: nobody
	// Members in the order in which they became members, then those that were invited.
	Members []Surveyed
	// Tolerance is how many voters may fail before the cluster takes no more appends.
	Tolerance int
}

// Survey asks every member how it is, all at once.
func (c *Cluster) Survey(ctx context.Context) (*Survey, error) {
	r := c.running.Load()
	if r == nil {
		return nil, ErrNoLeader
	}
	s := &Survey{Term: r.node.Term()}
	_, s.LeaderID = r.node.Leader()
	for _, m := range r.node.Members() {
		s.Members = append(s.Members, Surveyed{Member: m})
	}
	s.Members = append(s.Members, c.guests(s.Members)...)
	var asked sync.WaitGroup
	for i := range s.Members {
		asked.Go(func() { c.survey(ctx, &s.Members[i]) })
	}
	asked.Wait()
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
	sent := c.opts.Clock()
	if s.About, s.Err = k.describe(ctx); s.Err != nil {
		return
	}
	took := c.opts.Clock().Sub(sent)
	s.Offset = time.Unix(0, s.About.Clock).Sub(sent.Add(took / 2))
	if s.Invited {
		s.Member.ID = s.About.RaftId
	}
}

// guests are the nodes that were invited through this node and are no members yet.
func (c *Cluster) guests(members []Surveyed) []Surveyed {
	c.invited.mu.Lock()
	defer c.invited.mu.Unlock()
	for _, m := range members {
		delete(c.invited.until, m.Member.Address)
	}
	var guests []Surveyed
	for address, until := range c.invited.until {
		if time.Now().After(until) {
			delete(c.invited.until, address)
			continue
		}
		guests = append(guests, Surveyed{Member: raft.Member{Address: address}, Invited: true})
	}
	return guests
}

// Explain is an error of a survey as people read it.
func Explain(err error) string { return explain(err) }
