package runs

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"runlog/client/command/output"
	"runlog/client/command/session"

	"github.com/spf13/cobra"

	"runlog/client"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

type eventsOptions struct {
	afterSeq, limit uint64
	types           []string
	local, strict   bool
}

func (a *app) eventsCommand() *cobra.Command {
	var opts eventsOptions
	cmd := &cobra.Command{
		Use:   "events RUN",
		Short: "List the events of a run in order",
		Long: `List the events of a run in runSeq order. ATTEMPT is the logical attempt; the engine's own count
follows in parentheses once the engine has retried. With -o json each line is one EventRecord with
its payload as it was stored. A payload with line breaks, or with blanks around it, is payloadJson
in base64.

If none of the events has a --type, stderr says so. With --strict the exit code is then 3.`,
		Example:           "  runlog events run-1 --type StepFailed,RunFailed\n  runlog events run-1 --after-seq 120 -o json | jq .payload",
		Args:              session.OneRun,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithClient(func(c *client.Client) error { return a.listEvents(cmd.Context(), c, args[0], opts) })
		},
	}
	flags := cmd.Flags()
	flags.Uint64Var(&opts.afterSeq, "after-seq", 0, "only events after this runSeq")
	session.LimitFlag(flags, &opts.limit, 0, "limit of the number of events")
	session.TypesFlag(cmd, &opts.types)
	flags.BoolVar(&opts.strict, "strict", false, "fail if no event of the run has a --type")
	flags.BoolVar(&opts.local, "local", false, "let the node answer from its own state, without the leader")
	return cmd
}

func (a *app) listEvents(ctx context.Context, c *client.Client, run string, opts eventsOptions) error {
	met, more := map[string]bool{}, false
	events := output.First(readRun(ctx, c, run, opts), opts.limit, &more)
	err := output.List(&a.Output, meet(events, met), 0, output.RecordLine, eventCells,
		"SEQ", "PERSISTED", "TYPE", "STEP", "ATTEMPT", "EMITTED BY", "APPENDED BY", "PAYLOAD")
	if err != nil || more {
		return err // What was not read may have the types.
	}
	return a.tellUnmet(run, opts, met)
}

// meet yields events, and notes their types.
func meet(events iter.Seq2[*runlogv1.EventRecord, error], met map[string]bool) iter.Seq2[*runlogv1.EventRecord, error] {
	return func(yield func(*runlogv1.EventRecord, error) bool) {
		for record, err := range events {
			met[record.GetEventType()] = true
			if !yield(record, err) {
				return
			}
		}
	}
}

// tellUnmet tells of the types that no event of the run has. With --strict they are an error.
func (a *app) tellUnmet(run string, opts eventsOptions, met map[string]bool) error {
	var texts []string
	for _, name := range opts.types {
		if met[name] {
			continue
		}
		text := fmt.Sprintf("run %q has no event of type %q", run, name)
		if opts.afterSeq > 0 {
			text += fmt.Sprintf(" after runSeq %d", opts.afterSeq)
		}
		if likely, ok := contract.LikelyType(name); ok {
			text += "; did you mean " + likely + "?"
		}
		texts = append(texts, text)
	}
	if len(texts) > 0 && opts.strict {
		return output.Errorf(output.ExitNotFound, "%s", strings.Join(texts, "; "))
	}
	for _, text := range texts {
		if _, err := fmt.Fprintln(a.Stderr, "warning: "+output.OneLine(text)); err != nil {
			return err
		}
	}
	return nil
}

// readRun uses the stream, which is faster, unless the server has to filter.
func readRun(ctx context.Context, c *client.Client, run string, opts eventsOptions) iter.Seq2[*runlogv1.EventRecord, error] {
	consistency := runlogv1.Consistency_LINEARIZABLE
	if opts.local {
		consistency = runlogv1.Consistency_LOCAL
	}
	if len(opts.types) == 0 {
		return c.ReadEvents(ctx, &runlogv1.ReadEventsRequest{
			RunId: run, AfterSeq: opts.afterSeq, Limit: opts.limit, Consistency: consistency,
		})
	}
	return c.ListEvents(ctx, &runlogv1.ListEventsRequest{
		RunId: run, AfterSeq: opts.afterSeq, PageSize: session.PageSize(opts.limit + min(opts.limit, 1)), Types: opts.types, Consistency: consistency,
	})
}

func eventCells(record *runlogv1.EventRecord) []string {
	return []string{
		strconv.FormatUint(record.GetRunSeq(), 10),
		output.Stamp(record.GetPersistedAt()),
		record.GetEventType(),
		record.GetStepId(),
		output.Attempt(record.GetLogicalAttemptId(), record.GetEngineAttemptId()),
		record.GetEmittedBy(),
		output.Author(record),
		output.PayloadText(record),
	}
}
