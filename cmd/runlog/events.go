package main

import (
	"context"
	"iter"
	"strconv"

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
		Long: `List the events of a run in runSeq order. ATTEMPT is the logical attempt, with the engine's own
count in parentheses once it retried. With -o json each line is one EventRecord, its payload as
it was stored: one with line breaks, or blanks around it, is payloadJson, in base64.`,
		Example:           "  runlog events run-1 --type StepFailed\n  runlog events run-1 --after-seq 120 -o json | jq .payload",
		Args:              oneRun,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.listEvents(cmd.Context(), args[0], opts)
		},
	}
	flags := cmd.Flags()
	flags.Uint64Var(&opts.afterSeq, "after-seq", 0, "only events behind this runSeq")
	limitFlag(flags, &opts.limit, 0, "at most so many events")
	flags.StringArrayVar(&opts.types, "type", nil, "only events of this type; may be repeated")
	flags.BoolVar(&opts.local, "local", false, "let the node asked answer from what it has, without asking the leader")
	return cmd
}

func (a *app) listEvents(ctx context.Context, run string, opts eventsOptions) error {
	c, err := a.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	return list(a, readRun(ctx, c, run, opts), opts.limit, recordLine, eventCells,
		"SEQ", "PERSISTED", "TYPE", "STEP", "ATTEMPT", "EMITTED BY", "PAYLOAD")
}

// readRun takes the stream, which is faster, unless the server has to filter.
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
		RunId: run, AfterSeq: opts.afterSeq, PageSize: pageSize(opts.limit), Types: opts.types, Consistency: consistency,
	})
}

// pageSize asks for no more than is wanted; 0 lets the server choose.
func pageSize(limit uint64) uint32 { return uint32(min(limit, 1000)) }

func eventCells(record *runlogv1.EventRecord) []string {
	return []string{
		strconv.FormatUint(record.GetRunSeq(), 10),
		stamp(record.GetPersistedAt()),
		record.GetEventType(),
		record.GetStepId(),
		attempt(record.GetLogicalAttemptId(), record.GetEngineAttemptId()),
		record.GetEmittedBy(),
		payloadText(record),
	}
}

// attempt shows the logical attempt and, once the platform has retried it, the engine's: "1", "1
// (3)".
func attempt(logical, engine uint32) string {
	text := strconv.FormatUint(uint64(logical), 10)
	if engine > 1 {
		text += " (" + strconv.FormatUint(uint64(engine), 10) + ")"
	}
	return text
}
