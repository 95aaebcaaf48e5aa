package cluster

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"runlog/client/command/output"

	"github.com/spf13/cobra"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
)

const (
	// minWatchStep bounds the load of a watch on the cluster.
	minWatchStep = 100 * time.Millisecond
	// watchPatience is how long a watch waits for one answer before it shows the error and asks
	// again.
	watchPatience = 5 * time.Second
)

func (a *app) clusterStatusCommand() *cobra.Command {
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the members of the cluster and their state",
		Long: `Ask a node for the members of its cluster. The node asks each of them, and the command shows their answers.

BEHIND is how many log entries of the leader a member has not applied yet. LAST CONTACT is the time since
it heard from the leader. CLOCK is how far its clock is ahead of the clock of the asked node.

The exit code is 0 even if the cluster has faults: "runlog cluster doctor" finds those. With -o json each
answer is one object on one line, with the members in it.`,
		Example: "  runlog cluster status\n  runlog cluster status --server host1:7410,host2:7410 --watch 1s\n  runlog cluster status -o json | jq .leaderId",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case !cmd.Flags().Changed("watch"):
				return a.WithClient(func(c *client.Client) error { return a.showStatus(cmd.Context(), c) })
			case every < minWatchStep:
				return output.UsageError("--watch %v is less than %v", every, minWatchStep)
			default:
				return a.watchStatus(cmd.Context(), every)
			}
		},
	}
	cmd.Flags().DurationVar(&every, "watch", 0, "show the status again at this interval, until Ctrl-C")
	return cmd
}

func (a *app) showStatus(ctx context.Context, c *client.Client) error {
	status, err := c.GetStatus(ctx)
	if err != nil {
		return err
	}
	text, err := a.statusText(status, "")
	if err != nil {
		return err
	}
	_, err = a.Stdout.Write(text)
	return err
}

// watchStatus shows the status again and again. An error after the first answer is shown, and the
// call is repeated.
func (a *app) watchStatus(ctx context.Context, every time.Duration) error {
	a.limitTimeout(watchPatience)
	servers, err := a.Servers()
	if err != nil {
		return err
	}
	c, err := a.DialAttempts(len(servers) + 1)
	if err != nil {
		return err
	}
	defer c.Close()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for first := true; ; first = false {
		status, err := c.GetStatus(ctx)
		at := time.Now().UTC().Format(time.RFC3339)
		var text []byte
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return err
		case err != nil:
			_, why := a.Explain(err)
			text = fmt.Appendf(nil, "At  %s\nno answer: %s\n", at, why)
			if a.Format == output.JSON {
				text = nil // Every line of JSON is a status.
			}
		default:
			if text, err = a.statusText(status, at); err != nil {
				return err
			}
		}
		if err := a.redraw(text, first); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// redraw shows text: on a terminal in place of the last one, elsewhere after it.
func (a *app) redraw(text []byte, first bool) error {
	if a.StdoutWidth > 0 && a.Format != output.JSON {
		// Cursor home, erase to the end of each line, and at last below (ECMA-48 CUP, EL, ED). This
		// does not flicker.
		drawn := []byte("\x1b[H")
		if first {
			drawn = []byte("\x1b[2J\x1b[H")
		}
		// One line more than the terminal has would move all up, and the next answer would be drawn
		// in another place.
		lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		if a.StdoutHeight > 1 && len(lines) >= a.StdoutHeight {
			lines = append(lines[:a.StdoutHeight-2], "... (more lines than the terminal has)")
		}
		for _, line := range lines {
			drawn = fmt.Appendf(drawn, "%s\x1b[K\r\n", output.Cut(line, a.StdoutWidth))
		}
		text = fmt.Appendf(drawn, "\x1b[J")
	} else if !first && a.Format != output.JSON {
		text = append([]byte("\n"), text...)
	}
	_, err := a.Stdout.Write(text)
	return err
}

// statusText formats a status. at is the time that it shows; empty for none.
func (a *app) statusText(s *runlogv1.GetStatusResponse, at string) ([]byte, error) {
	if a.Format == output.JSON {
		line, err := output.JSONLine(s)
		return append(line, '\n'), err
	}
	var text bytes.Buffer
	out := bufio.NewWriter(&text)
	voters, _ := votersOf(s.GetMembers())
	leader := "none"
	if s.GetLeaderId() != "" {
		leader = s.GetLeaderId()
	}
	unconfirmed := ""
	if s.LeaderConfirmed != nil && !s.GetLeaderConfirmed() {
		unconfirmed = ", not confirmed by a majority"
	}
	output.Facts(out,
		[2]string{"At", at},
		[2]string{"Cluster", s.GetClusterId()},
		[2]string{"Leader", fmt.Sprintf("%s, term %d%s", leader, s.GetTerm(), unconfirmed)},
		[2]string{"Voters", output.Number(voters) + mayFail(int(s.GetFailureTolerance()))},
		[2]string{"Health", health(s)},
		[2]string{"Asked", s.GetNodeId()},
	)
	fmt.Fprintln(out)
	lines := [][]string{statusHeads[:]}
	for _, m := range s.GetMembers() {
		lines = append(lines, memberCells(s, m))
	}
	lines = narrow(lines, a.StdoutWidth)
	rows := output.NewTable(out, a.StdoutWidth, lines[0]...)
	for _, cells := range lines[1:] {
		rows.Row(cells...)
	}
	rows.End()
	err := out.Flush()
	return text.Bytes(), err
}

var statusHeads = [...]string{"NODE", "ROLE", "STATE", "APPLIED", "COMMITTED", "BEHIND", "LAST CONTACT", "CLOCK",
	"DISK FREE", "DATA", "RAFT", "GRPC", "VERSION", "ALERTS"}

// dispensable are the columns that a narrow terminal leaves out, in this order.
var dispensable = [...]string{"VERSION", "GRPC", "DATA", "RAFT", "COMMITTED", "ROLE"}

// alertsRoom is the width of the last column below which others are left out.
const alertsRoom = 24

// narrow leaves out columns until the last one has room on a terminal. A width of 0 is no terminal.
func narrow(lines [][]string, width int) [][]string {
	for _, head := range dispensable {
		used := 0
		for i := range len(lines[0]) - 1 {
			widest := 0
			for _, cells := range lines {
				widest = max(widest, len(cells[i]))
			}
			used += widest + 2
		}
		if width == 0 || used+alertsRoom <= width {
			break
		}
		at := slices.Index(lines[0], head)
		for i, cells := range lines {
			lines[i] = slices.Concat(cells[:at], cells[at+1:])
		}
	}
	return lines
}

// health summarises the findings on one line.
func health(s *runlogv1.GetStatusResponse) string {
	var wrong []finding
	for _, f := range judge(&view{GetStatusResponse: s, now: time.Now()}) {
		if f.severity > severityOK {
			wrong = append(wrong, f)
		}
	}
	switch len(wrong) {
	case 0:
		return "no fault found"
	case 1:
		return wrong[0].what
	default:
		return fmt.Sprintf("%s; and %s (runlog cluster doctor)", wrong[0].what, output.Plural(len(wrong)-1, "more finding"))
	}
}

func memberCells(s *runlogv1.GetStatusResponse, m *runlogv1.Member) []string {
	state := enumText(m.GetState().String())
	if percent, ok := seeded(m); ok {
		state += fmt.Sprintf(" %d%%", percent)
	}
	cells := []string{m.GetNodeId(), enumText(m.GetRole().String()), state, "", "", "", "", "", "", "", m.GetRaftAddress(), m.GetGrpcAddress(), m.GetVersion(), ""}
	if !answers(m) {
		cells[13] = "does not answer: " + whyUnreachable(m)
		return cells
	}
	if m.GetCommitIndex() > 0 {
		cells[3], cells[4] = strconv.FormatUint(m.GetAppliedIndex(), 10), strconv.FormatUint(m.GetCommitIndex(), 10)
	}
	if entries, ok := behind(s, m); ok {
		cells[5] = output.Number(entries)
	}
	if m.LastContact != nil && m.GetState() != runlogv1.MemberState_LEADER {
		cells[6] = output.Brief(m.GetLastContact().AsDuration())
	}
	if m.ClockOffset != nil && m.GetNodeId() != s.GetNodeId() {
		cells[7] = output.Signed(m.GetClockOffset().AsDuration())
	}
	if free, data := m.GetDiskFreeBytes(), m.GetDataBytes(); free+data > 0 {
		cells[8], cells[9] = output.Size(free), output.Size(data)
	}
	cells[13] = strings.Join(m.GetAlerts(), " ")
	return cells
}

// enumText formats the name of an enum value; empty for an unspecified one.
func enumText(name string) string {
	if name == "VALUE_UNSPECIFIED" {
		return ""
	}
	return strings.ReplaceAll(name, "_", "-")
}
