package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"runlog/storage"
)

// The feature level of the cluster (storage.CheckLevel) rises once every member supports the next
// one. Three things keep it from rising above what a member supports:
//
//   - the leader asks every member, voters and others, and raises it only after all have answered;
//   - no node joins while the leader asks and raises, and a node below the level does not join;
//   - the command names the members that were asked, and is refused where they have changed.

// levelStep is how often a leader looks whether the feature level can rise.
const levelStep = time.Second

// Propose puts a command into the log and returns what became of it.
type Propose func(context.Context, storage.Command) (storage.Outcome, error)

// KeepLevel raises the feature level of the cluster, while this node leads, to the highest that
// every member supports. It returns when the level is the highest of this build, or with the
// context.
func (c *Cluster) KeepLevel(ctx context.Context, propose Propose) {
	r := c.running.Load()
	if r == nil {
		return
	}
	ticker := time.NewTicker(levelStep)
	defer ticker.Stop()
	told := ""
	for r.store.Level() < c.opts.FeatureLevel && r.node.WaitLeading(ctx) == nil {
		err := c.raiseLevel(ctx, r, propose)
		switch {
		case err == nil:
			told = ""
		case ctx.Err() == nil && err.Error() != told:
			told = err.Error()
			c.log.Info("feature level not raised; retrying", "level", r.store.Level(), "supported", c.opts.FeatureLevel, "err", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// raiseLevel raises the level if it can. An error says what it waits for.
func (c *Cluster) raiseLevel(ctx context.Context, r *running, propose Propose) error {
	level := r.store.Level()
	if c.opts.FeatureLevel <= level {
		return nil
	}
	release, err := c.holdLevel(ctx)
	if err != nil {
		return err
	}
	defer release()
	// Read before the members are: a change between the two makes the command refused.
	membership, err := r.store.Membership()
	if err != nil {
		return err
	}
	var members []Surveyed
	for _, m := range r.node.Members() {
		members = append(members, Surveyed{Member: m})
	}
	c.surveyAll(ctx, members)
	next, err := lowestLevel(members, level)
	if err != nil {
		return err
	}
	next = min(next, c.opts.FeatureLevel)
	cmd, err := storage.EncodeOne(storage.RaiseLevel(next, membership.Index))
	if err != nil {
		return err
	}
	outcome, err := propose(ctx, cmd)
	if err == nil {
		err = outcome.Err
	}
	if err == nil {
		c.log.Info("feature level raised", "from", level, "to", next)
	}
	return err
}

// lowestLevel returns the highest level that all of the members support, or an error that names
// those that keep it at the level where it is.
func lowestLevel(members []Surveyed, level uint32) (lowest uint32, err error) {
	if len(members) == 0 {
		return 0, errors.New("the members are not known yet")
	}
	var waits []string
	levels := make([]uint32, len(members))
	for i := range members {
		m := &members[i]
		name := NodeIDOf(m.Member.ID)
		levels[i] = m.About.GetFeatureLevel()
		switch {
		case m.Err != nil:
			levels[i] = 0
			waits = append(waits, fmt.Sprintf("node %s does not answer (%s)", name, Explain(m.Err)))
		case levels[i] <= level:
			waits = append(waits, fmt.Sprintf("node %s (build %s) supports levels up to %d", name, m.About.GetVersion(), levels[i]))
		}
	}
	if len(waits) > 0 {
		return 0, errors.New(strings.Join(waits, ", "))
	}
	return slices.Min(levels), nil
}

// holdLevel keeps the level from being raised, and nodes from joining, until the returned function
// is called. It is no mutex: its holder waits for other nodes.
func (c *Cluster) holdLevel(ctx context.Context) (release func(), err error) {
	select {
	case c.levels <- struct{}{}:
		return func() { <-c.levels }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// levelFault refuses a node whose build does not support the feature level of the cluster.
func levelFault(r *running, nodeID string, supports uint32) error {
	if level := r.store.Level(); supports < level {
		return fmt.Errorf("node %s: %w: its build supports feature levels up to %d, the cluster is at level %d; upgrade the node's binary, then start it again",
			nodeID, ErrRefused, supports, level)
	}
	return nil
}
