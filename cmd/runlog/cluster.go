package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
)

func (a *app) clusterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Look after the nodes of a cluster",
		Long: `Show and change who belongs to the cluster. Any node takes any of these calls: name one that is up,
or all of them, with --server.`,
		Example: `  runlog cluster status --server host1:7410,host2:7410,host3:7410 --watch 1s
  runlog cluster add host4:7413`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.clusterStatusCommand(), a.clusterDoctorCommand(), a.clusterAddCommand(), a.clusterRemoveCommand(),
		a.clusterTransferCommand(), a.clusterCertsCommand(), a.clusterRecoverCommand())
	return cmd
}

// asking calls f with a client.
func (a *app) asking(f func(*client.Client) error) error {
	c, err := a.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	return f(c)
}

// answer is what one node answered about the cluster, or why it did not.
type answer struct {
	server string
	status *runlogv1.GetStatusResponse
	err    error
}

// ask asks one server once.
func (a *app) ask(ctx context.Context, server string) answer {
	c, err := client.Dial(server, client.Options{MaxAttempts: 1, Timeout: a.timeout, DialOptions: a.dialOptions})
	if err != nil {
		return answer{server: server, err: usageError("%v", err)}
	}
	defer c.Close()
	status, err := c.GetStatus(ctx)
	return answer{server, status, err}
}

// beBrief shortens --timeout where one slow node must not hold up what is said of the others.
func (a *app) beBrief(longest time.Duration) {
	if a.timeout == 0 || a.timeout > longest {
		a.timeout = longest
	}
}

// servers are the addresses that --server names.
func (a *app) servers() []string {
	var list []string
	for s := range strings.SplitSeq(a.server, ",") {
		if s = strings.TrimSpace(s); s != "" && !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}

// isVoter tells whether a member counts for a majority.
func isVoter(m *runlogv1.Member) bool { return m.GetRole() == runlogv1.MemberRole_VOTER }

// answers tells whether a member answered the node that asked it.
func answers(m *runlogv1.Member) bool { return m.GetState() != runlogv1.MemberState_UNREACHABLE }

// whyUnreachable is what a member's node was told that asked it. Of what gRPC says of connections
// the last part is enough.
func whyUnreachable(m *runlogv1.Member) string {
	if strings.HasPrefix(m.GetError(), "connection error: ") {
		return innermost(m.GetError())
	}
	return m.GetError()
}

// leaderOf returns the member that leads; nil: nobody, as far as the node knows that was asked.
func leaderOf(s *runlogv1.GetStatusResponse) *runlogv1.Member { return memberOf(s, s.GetLeaderId()) }

// memberOf returns a member by its name, or by what it is called in Raft; nil: there is none.
func memberOf(s *runlogv1.GetStatusResponse, node string) *runlogv1.Member {
	i := slices.IndexFunc(s.GetMembers(), func(m *runlogv1.Member) bool { return m.GetNodeId() == node || m.GetRaftId() == node })
	if i < 0 || node == "" {
		return nil
	}
	return s.GetMembers()[i]
}

// votersOf counts those that count for a majority, and those of them that answer.
func votersOf(members []*runlogv1.Member) (voters, up int) {
	for _, m := range members {
		if isVoter(m) {
			voters++
			if answers(m) {
				up++
			}
		}
	}
	return voters, up
}

// tolerance is how many voters may fail yet.
func tolerance(voters, up int) int { return max(0, up-(voters/2+1)) }

// tolerated says how many voters there are, and may fail yet.
func tolerated(voters, tolerance int) string { return plural(voters, "voter") + mayFail(tolerance) }

func mayFail(tolerance int) string {
	if tolerance == 0 {
		return ", none may fail"
	}
	return fmt.Sprintf(", %d may fail", tolerance)
}

// behind is how many entries of the log a member has not applied that the leader has. ok says that
// both have told.
func behind(s *runlogv1.GetStatusResponse, m *runlogv1.Member) (entries uint64, ok bool) {
	leader := leaderOf(s)
	if leader == nil || !answers(leader) || !answers(m) || m.GetCommitIndex() == 0 {
		return 0, false
	}
	// One that was asked a moment later may be ahead.
	return leader.GetAppliedIndex() - min(m.GetAppliedIndex(), leader.GetAppliedIndex()), true
}

// seeded is how much of the cluster's state a member has been given, in percent; ok says that it is
// being given it.
func seeded(m *runlogv1.Member) (percent int, ok bool) {
	if m.GetState() != runlogv1.MemberState_SEEDING || m.GetSeedBytes() == 0 {
		return 0, false
	}
	return int(100 * min(1, float64(m.GetSeededBytes())/float64(m.GetSeedBytes()))), true
}

// hostOf is an address without its port.
func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

// hasReason tells whether an error is a refusal for this reason.
func hasReason(err error, reason string) bool {
	e, ok := errors.AsType[*client.Error](err)
	return ok && e.Reason == reason
}
