package runs

import (
	"context"
	"iter"
	"strconv"

	"runlog/cmd/runlog/internal/output"
	"runlog/cmd/runlog/internal/session"

	"github.com/spf13/cobra"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
)

type eventsOptions struct {
	afterSeq, limit uint64
	types           []string
	local           bool
}

func (a *app) eventsCommand() *cobra.Command {
	var opts eventsOptions
	cmd := &cobra.Command{
		Use:   "events RUN",
		Short: "List the events of a run in order",
		Long: `List the events of a run in runSeq order. ATTEMPT is the logical attempt; the engine's own count
follows in parentheses once the engine has retried. With -o json each line is one EventRecord with
its payload as it was stored. A payload with line breaks, or with blanks around it, is payloadJson
in base64.`,
		Example:           "  runlog events run-1 --type StepFailed\n  runlog events run-1 --after-seq 120 -o json | jq .payload",
		Args:              session.OneRun,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.listEvents(cmd.Context(), args[0], opts)
		},
	}
	flags := cmd.Flags()
	flags.Uint64Var(&opts.afterSeq, "after-seq", 0, "only events after this runSeq")
	session.LimitFlag(flags, &opts.limit, 0, "limit of the number of events")
	session.TypesFlag(cmd, &opts.types)
	flags.BoolVar(&opts.local, "local", false, "let the node answer from its own state, without the leader")
	return cmd
}

func (a *app) listEvents(ctx context.Context, run string, opts eventsOptions) error {
	c, err := a.Dial()
	if err != nil {
		return err
	}
	defer c.Close()
	return output.List(&a.Output, readRun(ctx, c, run, opts), opts.limit, output.RecordLine, eventCells,
		"SEQ", "PERSISTED", "TYPE", "STEP", "ATTEMPT", "EMITTED BY", "PAYLOAD")
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
		RunId: run, AfterSeq: opts.afterSeq, PageSize: session.PageSize(opts.limit), Types: opts.types, Consistency: consistency,
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
		output.PayloadText(record),
	}
}
