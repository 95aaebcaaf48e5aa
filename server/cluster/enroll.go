package cluster

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	nodev1 "runlog/proto/node/v1"
)

const (
	// enrollStep is the interval of a node's checks whether it is a member.
	enrollStep = 250 * time.Millisecond
	// memberStep is that interval for a member.
	memberStep = 2 * time.Second
	// lostAfter is how long a member may lack messages of a leader before it asks whether it still
	// is a member.
	lostAfter = 5 * time.Second
)

// enroll makes this node a member under the address that it has now, and notices when it was
// removed.
func (c *Cluster) enroll() {
	var told time.Time
	led := time.Now()
	for {
		step := memberStep
		if _, leader := c.running.Load().node.Leader(); leader != "" {
			led = time.Now()
		}
		if done, err := c.tryEnroll(time.Since(led) > lostAfter); !done {
			step = enrollStep
			if err != nil && time.Since(told) > tellStep {
				if c.Identity().Member {
					c.log.Warn("no leader confirms this node's address; retrying", "err", explain(err))
				} else {
					c.log.Warn("this node is no member of the cluster yet; retrying", "err", explain(err))
				}
				told = time.Now()
			}
		}
		select {
		case <-time.After(step):
		case <-c.stopping.Done():
			return
		}
	}
}

// tryEnroll reports whether the cluster has this node as a member at its current address. A silent
// node has had no leader for a while: it may have been removed.
func (c *Cluster) tryEnroll(silent bool) (done bool, err error) {
	r := c.running.Load()
	self, known := r.node.Self()
	if known {
		if err := c.remember(); err != nil {
			c.opts.Fail(err)
			return false, err
		}
	}
	_, leader := r.node.Leader()
	switch {
	case known && self.Address == c.opts.Advertise && !silent:
		return true, nil
	case leader == "" && len(r.node.Members()) == 0 && c.Identity().Founding:
		return false, nil // the founder contacts this node
	case known && r.node.Leading():
		// There is no other node to ask, or this node leads and need not ask.
		return false, r.node.Add(c.stopping, c.selfID(), c.opts.Advertise, nil)
	}
	err = ErrNoLeader
	for _, address := range c.around() {
		var resp *nodev1.JoinResponse
		// Only a leader has the last word; whether a silent member still is one is asked without a
		// change.
		resp, err = c.askJoin(c.stopping, "", address, known && self.Address == c.opts.Advertise)
		if err == nil && resp.Member {
			// Recorded before a removal is possible: a removed node must not join again.
			if err = c.remember(); err != nil {
				c.opts.Fail(err)
			}
		}
		if err == nil {
			return resp.Member, c.note(resp.Member)
		}
		if c.Identity().Member && status.Code(err) == codes.FailedPrecondition {
			c.opts.Fail(fmt.Errorf("cluster: %s", explain(err)))
			return false, err
		}
	}
	return false, err
}

// note keeps that the node has become a member: from then on it may be removed, and must not join
// again by itself.
func (c *Cluster) note(member bool) error {
	if !member || c.Identity().Member {
		return nil
	}
	err := c.change(func(i *Identity) error { i.Member = true; return nil })
	if err != nil {
		c.opts.Fail(err)
	}
	return err
}

// remember stores that this node is a member, and the addresses of the others, for its next start.
func (c *Cluster) remember() error {
	var via []string
	for _, m := range c.running.Load().node.Members() {
		if m.ID != c.selfID() {
			via = append(via, m.Address)
		}
	}
	slices.Sort(via)
	me := c.Identity()
	if len(via) == 0 && !me.Member {
		via = me.Via // no membership received yet
	}
	if me.Member && slices.Equal(me.Via, via) {
		return nil
	}
	return c.change(func(i *Identity) error {
		i.Member, i.Via = true, via
		return nil
	})
}

// around are the addresses at which a member may be found.
func (c *Cluster) around() []string {
	var all []string
	r := c.running.Load()
	if address, id := r.node.Leader(); id != "" && id != c.selfID() {
		all = append(all, address)
	}
	for _, m := range r.node.Members() {
		if m.ID != c.selfID() {
			all = append(all, m.Address)
		}
	}
	all = append(append(all, c.Identity().Via...), c.opts.Join...)
	seen := map[string]bool{c.opts.Advertise: true}
	return slices.DeleteFunc(all, func(a string) bool {
		was := seen[a]
		seen[a] = true
		return was
	})
}
