package outbox

import (
	"encoding/json"
	"errors"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/client/command/output"
	"runlog/client/outbox"
)

func (a *app) listCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ls FILE",
		Short: "List the records of an outbox",
		Long: `List the records of an outbox, the oldest first: those that are pending, and those that the server has
refused for good, with the reason. An engine may have the outbox open. The command changes nothing.

If the file is damaged, the records that can be read are listed, stderr says what is lost, and the exit
code is 8.`,
		Example: "  runlog outbox ls /var/lib/engine/runlog.outbox",
		Args:    oneFile,
		RunE:    func(_ *cobra.Command, args []string) error { return a.list(args[0]) },
	}
}

func (a *app) list(path string) error {
	v, err := outbox.Read(path)
	if err != nil {
		return fileError(err)
	}
	defer v.Close()
	unreadable := 0
	err = output.List(&a.Output, readable(v.Records(), &unreadable), 0,
		func(r outbox.Record) ([]byte, error) { return json.Marshal(rowOf(r)) }, cells,
		"ID", "PARKED", "STATE", "TENANT", "RUN", "EVENTS", "TYPES", "REASON")
	return errors.Join(err, a.judge(path, v.Recovery(), unreadable))
}

// readable yields the records that can be read, and counts the others.
func readable(records iter.Seq2[outbox.Record, error], unreadable *int) iter.Seq2[outbox.Record, error] {
	return func(yield func(outbox.Record, error) bool) {
		for r, err := range records {
			if errors.Is(err, outbox.ErrUnreadable) {
				*unreadable++
				continue
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// judge is the error about what could not be read; nil: all could.
func (a *app) judge(path string, r outbox.Recovery, unreadable int) error {
	if unreadable > 0 {
		return output.Errorf(output.ExitFailed, "%s: %s cannot be read; everything else was read", path, output.Plural(unreadable, "record"))
	}
	return damage(path, r)
}

// row is a record as JSON shows it.
type row struct {
	ID     uint64   `json:"id"`
	Parked string   `json:"parkedAt"`
	State  string   `json:"state"`
	RunID  string   `json:"runId"`
	Tenant string   `json:"tenantId,omitempty"`
	Events int      `json:"events"`
	Types  []string `json:"eventTypes"`
	Keys   []string `json:"idempotencyKeys"`
	// Of the request; absent: it has none.
	ExpectedLastSeq *uint64 `json:"expectedLastSeq,omitempty"`
	Fence           *uint64 `json:"fence,omitempty"`
	// Of a rejected record.
	Reason   string `json:"reason,omitempty"`
	Rejected string `json:"rejectedAt,omitempty"`
}

func rowOf(r outbox.Record) row {
	req := r.Request
	out := row{
		ID: r.ID, Parked: stamp(r.Parked), State: "pending", RunID: req.GetRunId(), Events: len(req.GetEvents()),
		Types: []string{}, Keys: []string{}, ExpectedLastSeq: req.ExpectedLastSeq, Fence: req.Fence,
	}
	for _, e := range req.GetEvents() {
		out.Types = append(out.Types, e.GetEventType())
		out.Keys = append(out.Keys, e.GetIdempotencyKey())
		if out.Tenant == "" {
			out.Tenant = e.GetTenantId()
		}
		if out.RunID == "" {
			out.RunID = e.GetRunId()
		}
	}
	if !r.RejectedAt.IsZero() {
		out.State, out.Reason, out.Rejected = "rejected", r.Reason, stamp(r.RejectedAt)
	}
	return out
}

func stamp(at time.Time) string { return output.Stamp(timestamppb.New(at)) }

func cells(r outbox.Record) []string {
	row := rowOf(r)
	return []string{
		strconv.FormatUint(row.ID, 10), row.Parked, row.State, row.Tenant, row.RunID, strconv.Itoa(row.Events),
		strings.Join(row.Types, ","), row.Reason,
	}
}
