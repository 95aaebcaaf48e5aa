package cluster

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"runlog/client/command/output"

	"github.com/spf13/cobra"
)

// doctorPatience bounds the wait for one node, which itself waits a second for each of the others.
const doctorPatience = 8 * time.Second

func (a *app) clusterDoctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Find faults of the cluster, and their remedies",
		Long: `Ask the nodes of --server, and every member that these know, at the address that clients use, and check
their answers. One answer is enough. The worst finding comes first; with -o json each finding is one
object on one line.

The exit code is 0 if no finding is an ERROR, else 8.`,
		Example: "  runlog cluster doctor --server host1:7410,host2:7410,host3:7410",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.doctor(cmd.Context()) },
	}
}

func (a *app) doctor(ctx context.Context) error {
	a.limitTimeout(doctorPatience)
	servers, err := a.Servers()
	if err != nil {
		return err
	}
	named := a.askAll(ctx, servers)
	best := bestOf(named)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case best == nil:
		return named[len(named)-1].err
	}
	// The addresses that clients are sent to, and that were not asked yet.
	var others []string
	for _, m := range best.status.GetMembers() {
		if address := m.GetGrpcAddress(); address != "" && !slices.Contains(servers, address) && !slices.Contains(others, address) {
			others = append(others, address)
		}
	}
	sent := a.askAll(ctx, others)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	best = bestOf(slices.Concat(named, sent))
	found := slices.Concat(findServers(best, named, "--server names %s, which does not answer", "start it, or name another"),
		findServers(best, sent, "clients are sent to %s, which does not answer here", "check the network to it, or start that node with --grpc-advertise at an address that clients reach"),
		judge(&view{best.status, time.Now()}))
	worstFirst(found)
	if err := a.printFindings(found); err != nil {
		return err
	}
	count := func(s severity) (n int) {
		for _, f := range found {
			if f.severity == s {
				n++
			}
		}
		return n
	}
	if n := count(severityError); n > 0 {
		return output.Errorf(output.ExitFailed, "the doctor found %s and %s", output.Plural(n, "error"), output.Plural(count(severityWarning), "warning"))
	}
	return nil
}

// askAll asks all servers concurrently.
func (a *app) askAll(ctx context.Context, servers []string) []answer {
	all := make([]answer, len(servers))
	var asked sync.WaitGroup
	for i, server := range servers {
		asked.Go(func() { all[i] = a.ask(ctx, server) })
	}
	asked.Wait()
	return all
}

// bestOf returns the answer that the others are compared with: that of a confirmed leader, else
// that of a node whose leader is confirmed, else as before without the confirmation, of the newest
// term. It is nil if no server answered.
func bestOf(all []answer) *answer {
	rank := func(r *answer) (rank int) {
		s := r.status
		if s.GetLeaderConfirmed() {
			rank += 4
		}
		if s.GetLeaderId() != "" {
			rank += 2
		}
		if s.GetLeaderId() == s.GetNodeId() {
			rank++
		}
		return rank
	}
	var best *answer
	for i := range all {
		r := &all[i]
		if r.err == nil && (best == nil || cmp.Or(cmp.Compare(rank(r), rank(best)), cmp.Compare(r.status.GetTerm(), best.status.GetTerm())) > 0) {
			best = r
		}
	}
	return best
}

// findServers compares the answers of servers with the best one, and finds servers without an
// answer.
func findServers(best *answer, all []answer, silent, do string) (found []finding) {
	for _, r := range all {
		f := finding{check: "servers", severity: severityWarning}
		switch {
		case r.err != nil:
			f.what, f.do = fmt.Sprintf(silent, r.server), do
		case r.status.GetClusterId() != best.status.GetClusterId():
			f.severity = severityError
			f.what = fmt.Sprintf("%s belongs to cluster %s, and %s to %s", best.server, best.status.GetClusterId(), r.server, r.status.GetClusterId())
			f.do = "name nodes of one cluster; or one of them was started without --join and is a cluster of its own"
		case r.status.GetLeaderId() != best.status.GetLeaderId():
			f.severity = severityError
			f.what = fmt.Sprintf("%s does not see that %s leads", cmp.Or(r.status.GetNodeId(), r.server), best.status.GetLeaderId())
			f.do = "ask again in a few seconds; if this stays, check whether it reaches the leader at its raft address"
		default:
			continue
		}
		found = append(found, f)
	}
	return found
}

// findingLine is the JSON form of a finding.
type findingLine struct {
	Severity string   `json:"severity"`
	Check    string   `json:"check"`
	Nodes    []string `json:"nodes,omitempty"`
	What     string   `json:"what"`
	Do       string   `json:"do,omitempty"`
}

func (a *app) printFindings(all []finding) error {
	out := bufio.NewWriter(a.Stdout)
	for _, f := range all {
		if a.Format == output.JSON {
			line, err := json.Marshal(findingLine{f.severity.String(), f.check, f.nodes, f.what, f.do})
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "%s\n", line)
			continue
		}
		fmt.Fprintf(out, "%-7s  %s\n", f.severity, output.OneLine(f.what))
		if f.do != "" {
			fmt.Fprintf(out, "%s  → %s\n", strings.Repeat(" ", 7), output.OneLine(f.do))
		}
	}
	return out.Flush()
}
