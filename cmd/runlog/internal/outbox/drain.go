package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/spf13/cobra"

	"runlog/client"
	"runlog/client/command/output"
	"runlog/client/command/session"
	"runlog/client/outbox"
)

// maxFlying is how many requests, each of another run, are in flight.
const maxFlying = 8

func (a *app) drainCommand() *cobra.Command {
	var discard bool
	cmd := &cobra.Command{
		Use:   "drain FILE",
		Short: "Send the records of an outbox to the server",
		Long: `Send the pending records of an outbox, those of one run in their order. No engine may have the outbox
open: an engine that runs sends its records itself. A damaged file is repaired first; a copy of it stays
beside it.

A record that the server stores, or has stored before, is removed. A record that the server refuses for good
stays, as rejected, and the records behind it are sent. "runlog outbox ls" shows the reason, and "runlog
outbox export --state rejected" writes the events. A record of a tenant that this caller may not write to
stays pending, and so do the later records of its run; all others are sent. If the server does not answer, or
does not know the caller, the command ends and the records stay pending.

The exit code is 0 if nothing remains in the outbox. With --discard-rejected, the records that were rejected
before are removed, and their events are lost; export them first.`,
		Example: "  runlog outbox drain /var/lib/engine/runlog.outbox",
		Args:    oneFile,
		RunE:    func(cmd *cobra.Command, args []string) error { return a.drain(cmd.Context(), args[0], discard) },
	}
	cmd.Flags().BoolVar(&discard, "discard-rejected", false, "first remove the records that the server has refused before")
	return cmd
}

// drained counts what a drain has done.
type drained struct {
	mu        sync.Mutex
	Stored    int `json:"stored"`
	Duplicate int `json:"duplicates"`
	Refused   int `json:"refused"`
	Discarded int `json:"discarded"`
	// Runs whose records this caller may not send.
	Held int `json:"heldRuns"`
	// What remains.
	Pending  int `json:"pending"`
	Rejected int `json:"rejected"`
}

func (a *app) drain(ctx context.Context, path string, discard bool) (err error) {
	// Open would make a new outbox.
	v, err := outbox.Read(path)
	if err != nil {
		return fileError(err)
	}
	_ = v.Close()
	o, err := outbox.Open(path, outbox.Options{})
	if err != nil {
		return fileError(err)
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	if r := o.Recovery(); r.IsDamaged() {
		fmt.Fprintf(a.Stderr, "warning: %s was damaged and is repaired: %s\n", output.OneLine(path), output.OneLine(r.String()))
	}
	d := &drained{}
	if discard {
		if err := a.discard(ctx, o, d); err != nil {
			return err
		}
	}
	var failure error
	if o.Stats().Pending > 0 {
		failure = a.WithClient(func(c *client.Client) error {
			return o.Drain(ctx, maxFlying, func(ctx context.Context, r outbox.Record) error { return a.send(ctx, c, r, d) })
		})
	}
	stats := o.Stats()
	d.Pending, d.Rejected = stats.Pending, stats.Rejected
	sentence := fmt.Sprintf("%s stored, %s stored before, %s refused; %s pending and %s rejected remain",
		output.Plural(d.Stored, "record"), output.Number(d.Duplicate), output.Number(d.Refused), output.Number(d.Pending), output.Number(d.Rejected))
	if d.Discarded > 0 {
		sentence = fmt.Sprintf("%s discarded; ", output.Plural(d.Discarded, "rejected record")) + sentence
	}
	if err := a.Tell(sentence, d); err != nil {
		return err
	}
	return remains(failure, d)
}

// remains is the error of an outbox that is not empty.
func remains(failure error, d *drained) error {
	var held *outbox.HoldError
	switch {
	case errors.As(failure, &held):
		return output.WithHint(held.Cause, fmt.Sprintf("the records of %s stay, and all others were sent; "+
			"drain again with a token that may write to their tenants", output.Plural(d.Held, "run")))
	case failure != nil:
		return output.WithHint(failure, "the records that were not sent stay in the outbox; it is safe to run the same command again")
	case d.Rejected > 0:
		return output.Errorf(output.ExitRefused, "%s in the outbox; \"runlog outbox ls\" shows why, \"runlog outbox export --state rejected\" writes the events, "+
			"and \"runlog outbox drain --discard-rejected\" removes them", output.Plural(d.Rejected, "rejected record"))
	default:
		return nil
	}
}

// discard removes the rejected records, and prints each.
func (a *app) discard(ctx context.Context, o *outbox.Outbox, d *drained) error {
	var ids []uint64
	for r, err := range o.Rejected() {
		if err != nil {
			return err
		}
		row := rowOf(r)
		fmt.Fprintf(a.Stderr, "discarded record %d of run %q, %s: %s\n", r.ID, row.RunID, output.Plural(row.Events, "event"), output.OneLine(r.Reason))
		ids = append(ids, r.ID)
	}
	var err error
	d.Discarded, err = o.Discard(ctx, ids...)
	return err
}

// send sends one record.
func (a *app) send(ctx context.Context, c *client.Client, r outbox.Record, d *drained) error {
	res, err := c.AppendEvents(ctx, r.Request)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		fresh := false
		for _, result := range res.GetResults() {
			fresh = fresh || result.GetPersisted()
			if result.GetDiverged() {
				fmt.Fprintf(a.Stderr, "record %d: warning: differs from the stored event with the same key, runSeq %d of run %q; the stored event stays\n",
					r.ID, result.GetRunSeq(), rowOf(r).RunID)
			}
		}
		if fresh {
			d.Stored++
		} else {
			d.Duplicate++
		}
		return nil
	}
	if e, ok := errors.AsType[*client.Error](err); ok && e.Final() {
		reason := session.Refusal(e.Name(), e.Message, e.Violations)
		fmt.Fprintf(a.Stderr, "record %d of run %q: %s\n", r.ID, rowOf(r).RunID, output.OneLine(reason))
		d.Refused++
		return &outbox.RefusedError{Reason: reason}
	} else if ok && e.Reason == client.ReasonPermissionDenied {
		fmt.Fprintf(a.Stderr, "record %d of run %q stays, and the later ones of its run: %s\n", r.ID, rowOf(r).RunID, output.OneLine(e.Error()))
		d.Held++
		return &outbox.HoldError{Cause: err}
	}
	return err
}
