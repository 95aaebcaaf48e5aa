package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"runlog/client/command/output"
	"runlog/client/command/session"

	"github.com/spf13/cobra"

	"runlog/client"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// joinStep is the pause between two looks at a node that is joining.
const joinStep = 250 * time.Millisecond

func (a *app) clusterAddCommand() *cobra.Command {
	var noWait bool
	var lasting time.Duration
	cmd := &cobra.Command{
		Use:   "add ADDRESS",
		Short: "Invite a waiting node to the cluster",
		Long: `Invite the node that listens for other nodes at ADDRESS (--raft-listen) to the cluster, and wait until it
is a voter: the node receives the cluster's state, follows the log, and has to keep up for a while. It
must be new and wait: a node with --bootstrap-expect and without --join does, and so does a node with
--join that has neither a join token nor a certificate. With one of those (runlog cluster token,
runlog cluster certs) a node with --join joins by itself.

Ctrl-C ends the wait; the node goes on joining.`,
		Example: "  runlog cluster add host4:7413\n  runlog cluster add host4:7413 --no-wait",
		Args:    session.OneArgument("the address at which a node listens for other nodes"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithClient(func(c *client.Client) error { return a.addMember(cmd.Context(), c, args[0], noWait, lasting) })
		},
	}
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "return once the node is invited")
	cmd.Flags().DurationVar(&lasting, "for", 0, "longest wait; 0 waits without limit")
	return cmd
}

func (a *app) clusterRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "remove NODE",
		Short: "Remove a member from the cluster for good",
		Long: `Remove a member from the cluster. Its data directory can never join again: to bring the node back, start it
with an empty one. A leader transfers its leadership first. The command is refused if too few voters
that answer would be left.`,
		Example: "  runlog cluster remove n3",
		Args:    session.OneArgument("the name of a member, as runlog cluster status shows it"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithClient(func(c *client.Client) error { return a.removeMember(cmd.Context(), c, args[0]) })
		},
	}
}

func (a *app) clusterTransferCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "transfer [NODE]",
		Short:   "Transfer the leadership to another voter",
		Long:    "Make NODE the leader; without NODE, the voter with the longest log. Appends wait during the transfer; none is lost.",
		Example: "  runlog cluster transfer\n  runlog cluster transfer n2",
		Args:    session.Arguments(0, 1, "the name of one voter, or none"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithClient(func(c *client.Client) error { return a.transfer(cmd.Context(), c, append(args, "")[0]) })
		},
	}
}

func (a *app) clusterReleaseCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "release",
		Short: "Let a restored cluster start runs and deliver events",
		Long: `End the hold of a cluster that "runlog restore" has made. A cluster that is held leases no run and delivers no
event to webhooks, brokers and consumers: it may be a copy, beside the cluster whose backup it goes on from.
Before you release it, stop that cluster, or pause the queues and subscriptions that must not act twice.

The hold never comes back. Sent again, the command changes nothing.`,
		Example: "  runlog cluster release",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithClient(func(c *client.Client) error { return a.release(cmd.Context(), c) })
		},
	}
}

func (a *app) release(ctx context.Context, c *client.Client) error {
	res, err := c.ReleaseHold(ctx)
	if err != nil {
		return err
	}
	sentence := "the cluster is released: it leases runs and delivers events"
	if !res.GetReleased() {
		sentence = "the cluster is not held"
	}
	return a.Tell(sentence, struct {
		Released bool `json:"released"`
	}{res.GetReleased()})
}

// memberLine is the JSON form of a change of a member.
type memberLine struct {
	Node    string `json:"nodeId"`
	Address string `json:"raftAddress,omitempty"`
	// Phase is INVITED, JOINING, SEEDING, NON-VOTER, VOTER, UNREACHABLE or REMOVED.
	Phase  string `json:"phase"`
	Seeded *int   `json:"seededPercent,omitempty"`
	Behind uint64 `json:"behind,omitempty"`
	// Voters and Tolerance are those of the cluster after the change.
	Voters    int  `json:"voters,omitempty"`
	Tolerance *int `json:"failureTolerance,omitempty"`
}

// step returns the phase, with the tenths of the cluster's state that were received.
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
	if err := a.Tell(node+" is invited", memberLine{Node: node, Address: address, Phase: "INVITED"}); err != nil || noWait {
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
		return output.Errorf(output.ExitInterrupted, "wait interrupted; %s goes on joining: runlog cluster status shows how far it is", node)
	case over(waiting):
		return output.Errorf(output.ExitTimeout, "%s is no voter after %v; it goes on joining: runlog cluster status shows how far it is", node, lasting)
	default:
		return output.WithHint(err, node+" is invited and goes on joining")
	}
}

// over reports whether a wait has ended. A call learns of its deadline a moment before the context.
func over(waiting context.Context) bool {
	deadline, limited := waiting.Deadline()
	return waiting.Err() != nil || limited && !time.Now().Before(deadline)
}

// followJoin shows how far a node is until it is a voter. On a terminal it redraws one line;
// elsewhere it prints a line for each step.
func (a *app) followJoin(ctx context.Context, c *client.Client, node string) error {
	var bar *output.Progress
	if a.StderrWidth > 0 && a.Format != output.JSON {
		bar = a.NewProgress(0, time.Now())
		defer bar.Clear()
	}
	told := ""
	for {
		s, err := c.GetStatus(ctx)
		if err != nil {
			return err
		}
		line, text := joinLine(s, memberOf(s, node), node)
		if line.Phase == "VOTER" {
			bar.Clear()
			return a.Tell(text, line)
		}
		switch {
		case bar != nil:
			bar.Say(text)
		case line.step() != told:
			if err := a.Tell(text, line); err != nil {
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

// joinLine returns how far a node is. m is nil while the cluster does not list the node.
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
		return line, fmt.Sprintf("%s receives the cluster's state: %d%% of %s", node, percent, output.Size(m.GetSeedBytes()))
	case m != nil && !answers(m):
		line.Phase = "UNREACHABLE"
		return line, fmt.Sprintf("%s does not answer at %s: %s", node, m.GetRaftAddress(), whyUnreachable(m))
	default:
		line.Phase = "JOINING"
		return line, node + " prepares to join; if this takes long, its log says why"
	}
}

func entryCount(n uint64) string {
	if n == 1 {
		return "1 entry"
	}
	return output.Number(n) + " entries"
}

func (a *app) removeMember(ctx context.Context, c *client.Client, node string) error {
	before, err := c.GetStatus(ctx)
	if err != nil {
		return err
	}
	err = c.RemoveMember(ctx, &runlogv1.RemoveMemberRequest{NodeId: node})
	m := memberOf(before, node)
	if m != nil && session.HasReason(err, contract.ReasonMemberNotFound) {
		err = nil // An earlier attempt removed it, and its answer was lost.
	}
	if err != nil {
		return err
	}
	left := slices.DeleteFunc(slices.Clone(before.GetMembers()), func(o *runlogv1.Member) bool { return o == m })
	voters, up := votersOf(left)
	may := tolerance(voters, up)
	sentence := fmt.Sprintf("%s is removed: %s. Its data directory cannot join again", node, tolerated(voters, may))
	return a.Tell(sentence, memberLine{Node: node, Address: m.GetRaftAddress(), Phase: "REMOVED", Voters: voters, Tolerance: &may})
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
	return a.Tell(sentence, line)
}
