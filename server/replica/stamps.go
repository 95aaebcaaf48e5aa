package replica

import (
	"context"
	"errors"
	"time"

	"runlog/raft"
	"runlog/server/cluster"
)

const (
	// alertClockAhead is the name of the alert, in logs and documents.
	alertClockAhead = "CLOCK_FAR_AHEAD"
	// clockIdle is the time between two questions to the other voters on a node that does not lead.
	// It is asked more often on the leader.
	clockIdle = 10 * time.Second
	// clockFirst is the time until the second question, and clockRetry the longest until the next
	// one, while no other voter has answered. A leader proposes nothing before.
	clockFirst = 5 * time.Millisecond
	clockRetry = 250 * time.Millisecond
	// clockPatience is how long the answers are waited for.
	clockPatience = 500 * time.Millisecond
	// passOnTimeout bounds one attempt to pass the leadership on.
	passOnTimeout = time.Second
	// silenceTimeout is more than the lease of a leader and an election.
	silenceTimeout = 6 * time.Second
	silenceStep    = 20 * time.Millisecond
)

// watchStamps compares this node's clock with those of the other voters (APP-5). While the clock is
// too far ahead of a majority, it raises CLOCK_FAR_AHEAD. If the node leads then, it passes the
// leadership on.
func (r *Replica) watchStamps() {
	var raised bool
	var refused uint64
	retry := clockFirst
	for {
		changed := r.node.LeaderChange()
		voters := r.measure()
		raised = r.reportAhead(raised)
		refused = r.reportRefused(refused)
		r.passOn(voters)
		wait := clockIdle
		switch {
		case !r.stamps.Measured():
			wait, retry = retry, min(2*retry, clockRetry)
		case raised || r.node.Elected():
			wait = clockInterval
		}
		select {
		case <-changed:
			retry = clockFirst
		case <-r.stamps.Asked():
		case <-time.After(wait):
		case <-r.opts.Stopping.Done():
			return
		}
	}
}

// measure asks the other voters for their clocks, and returns those that answer.
func (r *Replica) measure() []cluster.Surveyed {
	ctx, cancel := context.WithTimeout(r.opts.Stopping, clockPatience)
	defer cancel()
	voters, answered := r.opts.Cluster.AskVoters(ctx)
	if voters > 0 {
		r.voters.Store(int64(voters))
	}
	clocks := make([]int64, len(answered))
	for i := range answered {
		clocks[i] = answered[i].Clock()
	}
	r.stamps.Measure(voters, clocks)
	return answered
}

// reportAhead reports whether the alert is raised, and logs when it is raised and when it is
// cleared.
func (r *Replica) reportAhead(raised bool) bool {
	ahead := r.stamps.Ahead()
	r.metrics.ahead.Set(ahead.Seconds())
	r.opts.Alerts.Set(alertClockAhead, ahead > 0)
	switch {
	case ahead > 0 && !raised:
		r.metrics.aheadAlerts.Inc()
		r.log.Error("clock is far ahead; check time synchronisation",
			"alert", alertClockAhead, "ahead", ahead.Round(time.Millisecond), "limit", r.opts.MaxClockAhead)
	case ahead == 0 && raised:
		r.log.Info("clock agrees with a majority again", "alert", alertClockAhead)
	}
	return ahead > 0
}

// reportRefused logs and counts what this node has refused since the last call.
func (r *Replica) reportRefused(before uint64) uint64 {
	now := r.stamps.Refused()
	if now > before {
		_, leader := r.node.Leader()
		r.metrics.refused.Add(float64(now - before))
		r.log.Warn("leader's stamps are far ahead; entries refused",
			"leader", cluster.NodeIDOf(leader), "messages", now-before, "limit", r.opts.MaxClockAhead)
	}
	return now
}

// passOn makes a voter lead whose clock is not too far ahead, if this node leads and must not. If
// that is not possible, this node sends nothing more until its lease ends. Another node is elected
// then, and overrules the entries that no majority accepts.
func (r *Replica) passOn(voters []cluster.Surveyed) {
	if !r.node.Elected() {
		return
	}
	stuck := r.stuck()
	if r.stamps.Ahead() == 0 && !stuck {
		return
	}
	for i := range voters {
		s := &voters[i]
		if stuck || r.stamps.AheadBy(s.Clock()) > 0 {
			continue // A voter cannot have the whole log while a majority refuses a part of it.
		}
		ctx, cancel := context.WithTimeout(r.opts.Stopping, passOnTimeout)
		err := r.node.Transfer(ctx, s.Member.ID)
		cancel()
		if err == nil || errors.Is(err, raft.ErrNotLeader) {
			return
		}
		r.log.Warn("cannot pass the leadership on", "to", s.Member.ID, "err", err)
	}
	r.log.Warn("leader falls silent until another is elected", "alert", alertClockAhead)
	r.beSilent()
}

// stuck reports whether the log has an entry that a majority refuses.
func (r *Replica) stuck() bool { return r.stamps.AheadBy(r.node.Uncommitted()) > 0 }

// beSilent lets the others elect a leader and overrule what a majority refuses. It ends after a
// while: perhaps this node is the only one that can be elected.
func (r *Replica) beSilent() {
	r.stamps.Silence(true)
	defer r.stamps.Silence(false)
	end := time.Now().Add(max(silenceTimeout, 5*r.opts.Raft.ElectionTimeout))
	for time.Now().Before(end) && (r.node.Elected() || r.stuck()) {
		select {
		case <-time.After(silenceStep):
		case <-r.opts.Stopping.Done():
			return
		}
	}
}
