package cluster

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"runlog/client/command/output"
	"runlog/client/command/session"

	"github.com/spf13/cobra"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
)

func (a *app) clusterCommand() *cobra.Command {
	return session.Group(&cobra.Command{
		Use:   "cluster",
		Short: "Show, check and change the nodes of a cluster",
		Long: `Show, check and change the members of the cluster. Any node takes any of these calls: name one that is up,
or all of them, with --server.`,
		Example: `  runlog cluster status --server host1:7410,host2:7410,host3:7410 --watch 1s
  runlog cluster add host4:7413`,
	}, a.clusterStatusCommand(), a.clusterDoctorCommand(), a.clusterAddCommand(), a.clusterRemoveCommand(), a.clusterTransferCommand(),
		a.clusterReleaseCommand(), a.clusterTokenCommand(), a.clusterCertsCommand(), a.clusterRecoverCommand(), a.clusterSalvageCommand())
}

// answer is the status of the cluster as one node gave it, or the error of the call.
type answer struct {
	server string
	status *runlogv1.GetStatusResponse
	err    error
}

// ask gets the status from one server, with a single attempt.
func (a *app) ask(ctx context.Context, server string) answer {
	c, err := a.DialServer(server, client.Options{MaxAttempts: 1})
	if err != nil {
		return answer{server: server, err: err}
	}
	defer c.Close()
	status, err := c.GetStatus(ctx)
	return answer{server, status, err}
}

// limitTimeout shortens --timeout, so that one slow node does not delay the answers of the others.
func (a *app) limitTimeout(longest time.Duration) {
	if a.Timeout == 0 || a.Timeout > longest {
		a.Timeout = longest
	}
}

// isVoter reports whether a member is a voter.
func isVoter(m *runlogv1.Member) bool { return m.GetRole() == runlogv1.MemberRole_VOTER }

// answers reports whether a member answered the node that asked it.
func answers(m *runlogv1.Member) bool { return m.GetState() != runlogv1.MemberState_UNREACHABLE }

// whyUnreachable returns the error that a node got when it asked a member. Of a connection error of
// gRPC only the last part is shown.
func whyUnreachable(m *runlogv1.Member) string {
	if strings.HasPrefix(m.GetError(), "connection error: ") {
		return session.Innermost(m.GetError())
	}
	return m.GetError()
}

// leaderOf returns the leader that the asked node knows; nil if it knows none.
func leaderOf(s *runlogv1.GetStatusResponse) *runlogv1.Member { return memberOf(s, s.GetLeaderId()) }

// memberOf returns a member by its name or its Raft id; nil if there is none.
func memberOf(s *runlogv1.GetStatusResponse, node string) *runlogv1.Member {
	i := slices.IndexFunc(s.GetMembers(), func(m *runlogv1.Member) bool { return m.GetNodeId() == node || m.GetRaftId() == node })
	if i < 0 || node == "" {
		return nil
	}
	return s.GetMembers()[i]
}

// votersOf counts the voters, and the voters that answer.
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

// tolerance returns how many more voters may fail.
func tolerance(voters, up int) int { return max(0, up-(voters/2+1)) }

// tolerated formats the number of voters, and how many more may fail.
func tolerated(voters, tolerance int) string {
	return output.Plural(voters, "voter") + mayFail(tolerance)
}

func mayFail(tolerance int) string {
	if tolerance == 0 {
		return ", none may fail"
	}
	return fmt.Sprintf(", %d may fail", tolerance)
}

// behind returns how many log entries that the leader has applied a member has not. ok is false if
// one of them did not report its index.
func behind(s *runlogv1.GetStatusResponse, m *runlogv1.Member) (entries uint64, ok bool) {
	leader := leaderOf(s)
	if leader == nil || !answers(leader) || !answers(m) || m.GetCommitIndex() == 0 {
		return 0, false
	}
	// A member that was asked a moment later may be ahead.
	return leader.GetAppliedIndex() - min(m.GetAppliedIndex(), leader.GetAppliedIndex()), true
}

// seeded returns how much of the cluster's state a member has received, in percent. ok is false if
// it is not receiving it.
func seeded(m *runlogv1.Member) (percent int, ok bool) {
	if m.GetState() != runlogv1.MemberState_SEEDING || m.GetSeedBytes() == 0 {
		return 0, false
	}
	return int(100 * min(1, float64(m.GetSeededBytes())/float64(m.GetSeedBytes()))), true
}

// hostOf returns the host of an address.
func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}
