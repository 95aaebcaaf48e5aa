package audit

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"time"

	"runlog/client/command/output"
	"runlog/client/command/session"

	"github.com/spf13/cobra"

	runlogv1 "runlog/proto/runlog/v1"
)

type auditQueryOptions struct {
	windowOptions
	limit uint64
}

func (a *app) auditQueryCommand() *cobra.Command {
	var opts auditQueryOptions
	cmd := &cobra.Command{
		Use:   "query --from TIME [--to TIME]",
		Short: "List the events of a window of time",
		Long: `List the events of a window in the order in which the cluster recorded them. With -o json each line is one
EventRecord. The last line, on stderr, tells of the window: the number of its events, their digest, and whether it is closed.
A closed window has the same events forever, on every node. An open one may still get more.

If the cluster has no event of a --type or of the --tenant at all, or no such --run, stderr says so. With --strict nothing is listed
then, and the exit code is 3.

` + windowHelp,
		Example: "  runlog audit query --from 2026-02-11 --to 2026-02-12 --tenant acme\n" +
			"  runlog audit query --from -1h --type StepFailed --type RunFailed -o json | jq .payload",
		Args: session.NoArguments("name a run with --run"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.auditQuery(cmd.Context(), opts)
		},
	}
	opts.addFlags(cmd)
	session.LimitFlag(cmd.Flags(), &opts.limit, 1000, "limit of the number of events")
	return cmd
}

// request returns the query of the window.
func (o *windowOptions) request(now time.Time) (*runlogv1.QueryEventsRequest, error) {
	from, to, err := o.window(now)
	if err != nil {
		return nil, err
	}
	return &runlogv1.QueryEventsRequest{
		From: from, To: to, TenantId: o.tenant, ProjectId: o.project, EnvironmentId: o.environment,
		PlanId: o.plan, RunId: o.run, StepId: o.step, Types: o.types,
	}, nil
}

func (a *app) auditQuery(ctx context.Context, opts auditQueryOptions) error {
	req, err := opts.request(time.Now())
	if err != nil {
		return err
	}
	req.PageSize = session.PageSize(opts.limit + min(opts.limit, 1))
	c, err := a.Dial()
	if err != nil {
		return err
	}
	defer c.Close()
	var last *runlogv1.QueryEventsResponse
	more := false
	begin := func(page *runlogv1.QueryEventsResponse) error { return a.tellUnseen(&opts.windowOptions, page) }
	err = output.List(&a.Output, output.First(eventsOf(c.QueryEvents(ctx, req), begin, &last), opts.limit, &more), 0, output.RecordLine, auditCells,
		"PERSISTED", "TENANT", "RUN", "SEQ", "TYPE", "STEP", "ATTEMPT", "EMITTED BY", "APPENDED BY", "PAYLOAD")
	if err != nil || last == nil {
		return err
	}
	_, err = fmt.Fprintln(a.Stderr, windowNote(last, opts.limit, more))
	return err
}

// eventsOf yields the events of pages. It passes the first page to begin, and stores the last page
// in last.
func eventsOf(
	pages iter.Seq2[*runlogv1.QueryEventsResponse, error], begin func(*runlogv1.QueryEventsResponse) error, last **runlogv1.QueryEventsResponse,
) iter.Seq2[*runlogv1.EventRecord, error] {
	return func(yield func(*runlogv1.EventRecord, error) bool) {
		for page, err := range pages {
			if err == nil && *last == nil {
				err = begin(page)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			*last = page
			for _, record := range page.GetEvents() {
				if !yield(record, nil) {
					return
				}
			}
		}
	}
}

// windowNote describes a window. more is true if not all of its events were listed.
func windowNote(p *runlogv1.QueryEventsResponse, limit uint64, more bool) string {
	if more {
		return fmt.Sprintf("these are the first %s %s; --limit 0 lists all, \"runlog audit export\" writes them to a file",
			output.Plural(limit, "event"), span(p.GetFrom(), p.GetTo()))
	}
	if p.GetClosed() {
		return fmt.Sprintf("%s %s; closed: it has these events forever; digest %s", output.Plural(p.GetCount(), "event"), span(p.GetFrom(), p.GetTo()), p.GetDigest())
	}
	return fmt.Sprintf("%s so far %s; open: complete through %s, and events may still come behind that; ask again when the window has passed",
		output.Plural(p.GetCount(), "event"), span(p.GetFrom(), p.GetTo()), clock(p.GetCompleteThrough()))
}

func auditCells(record *runlogv1.EventRecord) []string {
	return []string{
		output.Stamp(record.GetPersistedAt()),
		record.GetTenantId(),
		record.GetRunId(),
		strconv.FormatUint(record.GetRunSeq(), 10),
		record.GetEventType(),
		record.GetStepId(),
		output.Attempt(record.GetLogicalAttemptId(), record.GetEngineAttemptId()),
		record.GetEmittedBy(),
		output.Author(record),
		output.PayloadText(record),
	}
}
