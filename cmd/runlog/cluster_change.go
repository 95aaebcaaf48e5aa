package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"runlog/client"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// joinStep is how often it is looked how far a node is that becomes a member.
const joinStep = 250 * time.Millisecond

func (a *app) clusterAddCommand() *cobra.Command {
	var noWait bool
	var lasting time.Duration
	cmd := &cobra.Command{
		Use:   "add ADDRESS",
		Short: "Make a node that waits a member of the cluster",
		Long: `Invite the node that listens for other nodes at ADDRESS (--raft-listen) to the cluster, and wait until it
is a voter: it is given the cluster's state, follows the log, and has to keep up for a while. The node
must be new and wait for others (runlog serve --bootstrap-expect); one that was started with --join at a
member joins by itself.

Ctrl-C ends the waiting and not the joining.`,
		Example: "  runlog cluster add host4:7413\n  runlog cluster add host4:7413 --no-wait",
		Args:    oneArgument("the address at which a node listens for other nodes"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.asking(func(c *client.Client) error { return a.addMember(cmd.Context(), c, args[0], noWait, lasting) })
		},
	}
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "end as soon as the node is invited")
	cmd.Flags().DurationVar(&lasting, "for", 0, "wait no longer than this; 0 means for as long as it takes")
	return cmd
}

func (a *app) clusterRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "remove NODE",
		Short: "Take a member out of the cluster, for good",
		Long: `Take a member out of the cluster. Its data directory can never join again: to bring the node back, empty
it and start anew. A leader hands its leadership over first. What would leave too few voters that
answer is refused.`,
		Example: "  runlog cluster remove n3",
		Args:    oneArgument("the name of a member, as runlog cluster status shows it"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.asking(func(c *client.Client) error { return a.removeMember(cmd.Context(), c, args[0]) })
		},
	}
}

func (a *app) clusterTransferCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "transfer [NODE]",
		Short:   "Make another voter the leader",
		Long:    "Make NODE the leader; without NODE, the voter that is furthest. Appends wait meanwhile, and none is lost.",
		Example: "  runlog cluster transfer\n  runlog cluster transfer n2",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("transfer takes the name of one voter, or none, not %s", plural(len(args), "argument"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.asking(func(c *client.Client) error { return a.transfer(cmd.Context(), c, append(args, "")[0]) })
		},
	}
}

// oneArgument checks the arguments of a command that takes one.
func oneArgument(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s takes %s, not %s", cmd.Name(), what, plural(len(args), "argument"))
		}
		return nil
	}
}

// tell writes what was done, as a sentence or as a line of JSON.
func (a *app) tell(sentence string, line any) error {
	if a.format == formatJSON {
		return json.NewEncoder(a.stdout).Encode(line)
	}
	_, err := fmt.Fprintln(a.stdout, oneLine(sentence))
	return err
}

// memberLine is a change of a member as JSON shows it.
type memberLine struct {
	Node    string `json:"nodeId"`
	Address string `json:"raftAddress,omitempty"`
	// Phase is INVITED, JOINING, SEEDING, NON-VOTER, VOTER, UNREACHABLE or REMOVED.
	Phase  string `json:"phase"`
	Seeded *int   `json:"seededPercent,omitempty"`
	Behind uint64 `json:"behind,omitempty"`
	// Of the cluster, at the end.
	Voters    int  `json:"voters,omitempty"`
	Tolerance *int `json:"failureTolerance,omitempty"`
}

// step is the phase, and how many tenths of the cluster's state have come.
func (l *memberLine) step() string {
	if l.Seeded == nil {
		return l.Phase
	}
	return fmt.Sprint(l.Phase, *l.Seeded/10)
}

func (a *app) addMember(ctx context.Context, c *client.Client, address string, noWait bool, lasting time.Duration) error {
	res, err := c.AddMember(ctx, &runlogv1.AddMemberRequest{RaftAddress: address})
	if err != nil {
		return err
	}
	node := res.GetNodeId()
	if err := a.tell(node+" is invited", memberLine{Node: node, Address: address, Phase: "INVITED"}); err != nil || noWait {
		return err
	}
	waiting, cancel := ctx, context.CancelFunc(func() {})
	if lasting > 0 {
		waiting, cancel = context.WithTimeout(ctx, lasting)
	}
	defer cancel()
	err = a.followJoin(waiting, c, node)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return &exitError{exitInterrupted, fmt.Sprintf("no longer waiting; %s goes on joining, and runlog cluster status shows how far it is", node)}
	case waiting.Err() != nil:
		return &exitError{exitTimeout, fmt.Sprintf("%s is no voter after %v; it goes on joining, and runlog cluster status shows how far it is", node, lasting)}
	default:
		return hinted{err, node + " is invited and goes on joining"}
	}
}

// followJoin shows how far a node is until it is a voter. On a terminal that is drawn over itself;
// elsewhere a line tells of each step.
func (a *app) followJoin(ctx context.Context, c *client.Client, node string) error {
	var bar *progress
	if a.stderrWidth > 0 && a.format != formatJSON {
		bar = &progress{w: a.stderr, width: a.stderrWidth}
		defer bar.clear()
	}
	told := ""
	for {
		s, err := c.GetStatus(ctx)
		if err != nil {
			return err
		}
		line, text := joinLine(s, memberOf(s, node), node)
		if line.Phase == "VOTER" {
			bar.clear()
			return a.tell(text, line)
		}
		switch {
		case bar != nil:
			bar.say(text)
		case line.step() != told:
			if err := a.tell(text, line); err != nil {
				return err
			}
		}
		told = line.step()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(joinStep):
		}
	}
}

// joinLine tells how far a node is; a nil member is not shown yet.
func joinLine(s *runlogv1.GetStatusResponse, m *runlogv1.Member, node string) (memberLine, string) {
	line := memberLine{Node: node, Address: m.GetRaftAddress()}
	percent, seeding := seeded(m)
	switch {
	case m.GetRole() == runlogv1.MemberRole_VOTER:
		left := int(s.GetFailureTolerance())
		line.Phase, line.Tolerance = "VOTER", &left
		line.Voters, _ = votersOf(s.GetMembers())
		return line, fmt.Sprintf("%s is a voter: %s", node, tolerated(line.Voters, left))
	case m.GetRole() == runlogv1.MemberRole_NON_VOTER:
		line.Phase = "NON-VOTER"
		line.Behind, _ = behind(s, m)
		return line, fmt.Sprintf("%s follows the log, %s behind, and becomes a voter once it has kept up for a while", node, entryCount(line.Behind))
	case seeding:
		line.Phase, line.Seeded = "SEEDING", &percent
		return line, fmt.Sprintf("%s is given the cluster's state: %d%% of %s", node, percent, sizeText(m.GetSeedBytes()))
	case m != nil && !answers(m):
		line.Phase = "UNREACHABLE"
		return line, fmt.Sprintf("%s does not answer at %s: %s", node, m.GetRaftAddress(), whyUnreachable(m))
	default:
		line.Phase = "JOINING"
		return line, node + " gets ready to take part; if this lasts, its log says why"
	}
}

func entryCount(n uint64) string {
	if n == 1 {
		return "1 entry"
	}
	return number(n) + " entries"
}

func (a *app) removeMember(ctx context.Context, c *client.Client, node string) error {
	before, err := c.GetStatus(ctx)
	if err != nil {
		return err
	}
	err = c.RemoveMember(ctx, &runlogv1.RemoveMemberRequest{NodeId: node})
	m := memberOf(before, node)
	if m != nil && hasReason(err, string(contract.ReasonMemberNotFound)) {
		err = nil // the first try had done it, and nobody heard
	}
	if err != nil {
		return err
	}
	left := slices.DeleteFunc(slices.Clone(before.GetMembers()), func(o *runlogv1.Member) bool { return o == m })
	voters, up := votersOf(left)
	may := tolerance(voters, up)
	sentence := fmt.Sprintf("%s is removed: %s. Its data directory cannot join again", node, tolerated(voters, may))
	return a.tell(sentence, memberLine{Node: node, Address: m.GetRaftAddress(), Phase: "REMOVED", Voters: voters, Tolerance: &may})
}

func (a *app) transfer(ctx context.Context, c *client.Client, node string) error {
	before, err := c.GetStatus(ctx)
	if err != nil {
		return err
	}
	res, err := c.TransferLeadership(ctx, &runlogv1.TransferLeadershipRequest{NodeId: node})
	if err != nil {
		return err
	}
	line := struct {
		Leader string `json:"leaderId"`
		Before string `json:"leaderIdBefore,omitempty"`
	}{res.GetLeaderId(), before.GetLeaderId()}
	sentence := fmt.Sprintf("%s leads, before it %s", line.Leader, line.Before)
	switch line.Before {
	case line.Leader:
		sentence = line.Leader + " leads, as before"
	case "":
		sentence = line.Leader + " leads"
	}
	return a.tell(sentence, line)
}
