package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
)

const (
	// minWatchStep keeps a watched cluster from being busy with being watched.
	minWatchStep = 100 * time.Millisecond
	// watchPatience is how long a watch waits for one answer: it says what is wrong and asks again.
	watchPatience = 5 * time.Second
)

func (a *app) clusterStatusCommand() *cobra.Command {
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the members of the cluster and how they are",
		Long: `Ask a node for the members of its cluster. It asks each of them, and shows what they say of themselves.

BEHIND is how many log entries of the leader's a member has not applied yet; LAST CONTACT is since it
heard from the leader; CLOCK is how far its clock is ahead of that of the node that was asked.

The exit code is 0 also where something is wrong: "runlog cluster doctor" judges. With -o json each
answer is one object on one line, with the members in it.`,
		Example: "  runlog cluster status\n  runlog cluster status --server host1:7410,host2:7410 --watch 1s\n  runlog cluster status -o json | jq .leaderId",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case !cmd.Flags().Changed("watch"):
				return a.asking(func(c *client.Client) error { return a.showStatus(cmd.Context(), c) })
			case every < minWatchStep:
				return usageError("--watch %v is less than %v", every, minWatchStep)
			default:
				return a.watchStatus(cmd.Context(), every)
			}
		},
	}
	cmd.Flags().DurationVar(&every, "watch", 0, "show it again each time that so long has passed, until Ctrl-C")
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
	_, err = a.stdout.Write(text)
	return err
}

// watchStatus shows the status over and over. Once there was an answer, none is shown as one, and
// asked for again.
func (a *app) watchStatus(ctx context.Context, every time.Duration) error {
	a.beBrief(watchPatience)
	c, err := client.Dial(a.server, client.Options{MaxAttempts: len(a.servers()) + 1, Timeout: a.timeout, DialOptions: a.dialOptions})
	if err != nil {
		return usageError("%v", err)
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
			_, why := a.explain(err)
			text = fmt.Appendf(nil, "At  %s\nnobody answers: %s\n", at, why)
			if a.format == formatJSON {
				text = nil // a line that is no status would be none to those that read it
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

// redraw shows text in place of what was shown before, on a terminal; elsewhere, behind it.
func (a *app) redraw(text []byte, first bool) error {
	if a.stdoutWidth > 0 && a.format != formatJSON {
		// Cursor home, erase to the end of each line and, at last, below it (ECMA-48 CUP, EL, ED):
		// nothing flickers.
		drawn := []byte("\x1b[H")
		if first {
			drawn = []byte("\x1b[2J\x1b[H")
		}
		for line := range strings.Lines(string(text)) {
			drawn = fmt.Appendf(drawn, "%s\x1b[K\r\n", cut(strings.TrimSuffix(line, "\n"), a.stdoutWidth))
		}
		text = fmt.Appendf(drawn, "\x1b[J")
	} else if !first && a.format != formatJSON {
		text = append([]byte("\n"), text...)
	}
	_, err := a.stdout.Write(text)
	return err
}

// statusText is a status as it is shown, at a time if that is not empty.
func (a *app) statusText(s *runlogv1.GetStatusResponse, at string) ([]byte, error) {
	if a.format == formatJSON {
		line, err := jsonLine(s)
		return append(line, '\n'), err
	}
	var text bytes.Buffer
	out := bufio.NewWriter(&text)
	voters, _ := votersOf(s.GetMembers())
	leader := "nobody"
	if s.GetLeaderId() != "" {
		leader = s.GetLeaderId()
	}
	facts(out,
		[2]string{"At", at},
		[2]string{"Cluster", s.GetClusterId()},
		[2]string{"Leader", fmt.Sprintf("%s, term %d", leader, s.GetTerm())},
		[2]string{"Voters", number(voters) + mayFail(int(s.GetFailureTolerance()))},
		[2]string{"Health", health(s)},
		[2]string{"Asked", s.GetNodeId()},
	)
	fmt.Fprintln(out)
	lines := [][]string{statusHeads[:]}
	for _, m := range s.GetMembers() {
		lines = append(lines, memberCells(s, m))
	}
	lines = narrow(lines, a.stdoutWidth)
	rows := newTable(out, a.stdoutWidth, lines[0]...)
	for _, cells := range lines[1:] {
		rows.row(cells...)
	}
	rows.end()
	err := out.Flush()
	return text.Bytes(), err
}

var statusHeads = [...]string{"NODE", "ROLE", "STATE", "APPLIED", "COMMITTED", "BEHIND", "LAST CONTACT", "CLOCK",
	"DISK FREE", "DATA", "RAFT", "GRPC", "VERSION", "ALERTS"}

// dispensable are the columns that a narrow terminal does without, the first one first.
var dispensable = [...]string{"VERSION", "GRPC", "DATA", "RAFT", "COMMITTED", "ROLE"}

// alertsRoom is what the last column has before others are left out.
const alertsRoom = 24

// narrow leaves out columns until the last one has room on a terminal; a width of 0 is none.
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

// health is what is wrong, on one line.
func health(s *runlogv1.GetStatusResponse) string {
	var wrong []finding
	for _, f := range judge(&view{GetStatusResponse: s, now: time.Now()}) {
		if f.severity > severityOK {
			wrong = append(wrong, f)
		}
	}
	switch len(wrong) {
	case 0:
		return "nothing is wrong"
	case 1:
		return wrong[0].what
	default:
		return fmt.Sprintf("%s; and %s (runlog cluster doctor)", wrong[0].what, plural(len(wrong)-1, "more finding"))
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
		cells[5] = number(entries)
	}
	if m.LastContact != nil && m.GetState() != runlogv1.MemberState_LEADER {
		cells[6] = brief(m.GetLastContact().AsDuration())
	}
	if m.ClockOffset != nil && m.GetNodeId() != s.GetNodeId() {
		cells[7] = signed(m.GetClockOffset().AsDuration())
	}
	if free, data := m.GetDiskFreeBytes(), m.GetDataBytes(); free+data > 0 {
		cells[8], cells[9] = sizeText(free), sizeText(data)
	}
	cells[13] = strings.Join(m.GetAlerts(), " ")
	return cells
}

// enumText is empty for a value that the server did not tell.
func enumText(name string) string {
	if name == "VALUE_UNSPECIFIED" {
		return ""
	}
	return strings.ReplaceAll(name, "_", "-")
}
