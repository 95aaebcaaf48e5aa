package main

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"time"

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
		Short: "List the events that were recorded in a window of time",
		Long: `List the events of a window in the order in which they were recorded. With -o json each line is one EventRecord.
What is known of the window comes last, on stderr: how many events it has, their digest, and whether it is closed. A closed
window has the same events for ever, at every node; events may still be added to an open one.

` + windowHelp,
		Example: "  runlog audit query --from 2026-02-11 --to 2026-02-12 --tenant acme\n" +
			"  runlog audit query --from -1h --type StepFailed --type RunFailed -o json | jq .payload",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.auditQuery(cmd.Context(), opts)
		},
	}
	opts.addFlags(cmd)
	limitFlag(cmd.Flags(), &opts.limit, 1000, "at most so many events")
	return cmd
}

// request is the query of the window.
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
	req.PageSize = pageSize(opts.limit + min(opts.limit, 1))
	c, err := a.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	var last *runlogv1.QueryEventsResponse
	more := false
	err = list(a, firstOf(eventsOf(c.QueryEvents(ctx, req), &last), opts.limit, &more), 0, recordLine, auditCells,
		"PERSISTED", "TENANT", "RUN", "SEQ", "TYPE", "STEP", "ATTEMPT", "EMITTED BY", "PAYLOAD")
	if err != nil || last == nil {
		return err
	}
	_, err = fmt.Fprintln(a.stderr, windowNote(last, opts.limit, more))
	return err
}

// eventsOf yields the events of pages, and notes the last page.
func eventsOf(pages iter.Seq2[*runlogv1.QueryEventsResponse, error], last **runlogv1.QueryEventsResponse) iter.Seq2[*runlogv1.EventRecord, error] {
	return func(yield func(*runlogv1.EventRecord, error) bool) {
		for page, err := range pages {
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

// windowNote says what is known of a window, all of which was listed unless there is more.
func windowNote(p *runlogv1.QueryEventsResponse, limit uint64, more bool) string {
	if more {
		return fmt.Sprintf("these are the first %s %s; --limit 0 shows all, \"runlog audit export\" takes them away",
			plural(limit, "event"), span(p.GetFrom(), p.GetTo()))
	}
	if p.GetClosed() {
		return fmt.Sprintf("%s %s; closed: it has these events for ever; digest %s", plural(p.GetCount(), "event"), span(p.GetFrom(), p.GetTo()), p.GetDigest())
	}
	return fmt.Sprintf("%s so far %s; open: complete through %s, and events may still come behind that; ask again when the window has passed",
		plural(p.GetCount(), "event"), span(p.GetFrom(), p.GetTo()), clock(p.GetCompleteThrough()))
}

func auditCells(record *runlogv1.EventRecord) []string {
	return []string{
		stamp(record.GetPersistedAt()),
		record.GetTenantId(),
		record.GetRunId(),
		strconv.FormatUint(record.GetRunSeq(), 10),
		record.GetEventType(),
		record.GetStepId(),
		attempt(record.GetLogicalAttemptId(), record.GetEngineAttemptId()),
		record.GetEmittedBy(),
		payloadText(record),
	}
}
