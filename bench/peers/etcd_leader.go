package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"runlog/bench/target"
)

// leadership names the leader and its term.
type leadership struct{ member, term uint64 }

// electionLimit is how long members may be without a leader.
const electionLimit = 30 * time.Second

// findLeader connects to the member that says that it leads.
func (e *etcd) findLeader(ctx context.Context) error {
	deadline := time.Now().Add(electionLimit)
	for {
		for _, m := range e.members {
			c, err := dialEtcd(m.address)
			if err != nil {
				return err
			}
			status, err := c.Status(ctx, m.address)
			if err == nil && status.Leader == status.Header.MemberId {
				e.client, e.leader = c, leadership{status.Leader, status.RaftTerm}
				return nil
			}
			if err = errors.Join(err, c.Close()); err != nil {
				return err
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("none of %d members leads within %v", len(e.members), electionLimit)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Check tells when another member has led meanwhile than the one that was measured.
func (e *etcd) Check(ctx context.Context) error {
	status, err := e.client.Status(ctx, e.client.Endpoints()[0])
	if err != nil {
		return err
	}
	if now := (leadership{status.Leader, status.RaftTerm}); now != e.leader {
		return &target.AnswerError{Reason: "LEADER_MOVED", Message: fmt.Sprintf("member %x led in term %d, and now %x does in term %d", e.leader.member, e.leader.term, now.member, now.term)}
	}
	return nil
}
