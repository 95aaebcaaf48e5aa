package audit

import (
	"context"
	"errors"
	"time"

	"runlog/audit/proof"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/rpc"
	"runlog/server/rpc/wire"
	"runlog/storage"

	"google.golang.org/grpc"
)

const (
	// maxExports limits the concurrent exports of a node (D12).
	maxExports = 8
	// exportEvents and exportBytes limit one message of an export.
	exportEvents = 256
	exportBytes  = 256 << 10
	// exportEnvelope is the approximate size of an event without its payload.
	exportEnvelope = 700
	// exportAhead is the number of messages that wait to be sent.
	exportAhead = 4
	// exportSlice is the number of events between two pauses of the throttle.
	exportSlice = 64
	// exportHold is how long an export holds one view of the store. Pebble keeps the files of a
	// view.
	exportHold = time.Second
	// exportTell is the time between progress messages of an export that finds no events.
	exportTell = time.Second
)

var errExportStopped = &contract.Error{Reason: contract.ReasonShuttingDown,
	Message: "the node is stopping: resume from the last resumeToken at another node"}

// ExportEvents streams all events of a window (READ-3, READ-4).
func (s *Service) ExportEvents(req *runlogv1.ExportEventsRequest, stream grpc.ServerStreamingServer[runlogv1.ExportEventsResponse]) error {
	return s.export(req, stream)
}

func (s *Service) export(req *runlogv1.ExportEventsRequest, stream grpc.ServerStreamingServer[runlogv1.ExportEventsResponse]) error {
	w, err := s.parseWindow(stream.Context(), req)
	if err != nil {
		return err
	}
	if s.exports.Add(1) > maxExports {
		s.exports.Add(-1)
		return &contract.Error{Reason: contract.ReasonOverloaded, RetryAfter: rpc.OverloadDelay,
			Message: "the node makes its maximum of exports"}
	}
	defer s.exports.Add(-1)
	answer, err := s.closeWindow(stream.Context(), w)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	forget := context.AfterFunc(s.opts.Stopping, func() { cancel(errExportStopped) })
	defer forget()
	now := s.node.Store().Applied()
	if err := s.reachTree(ctx, now.Position(), req.TreeSize); err != nil {
		return err
	}
	e := &exporting{
		s: s, w: w, positions: answer.positions, form: req.PayloadForm, tree: req.TreeSize, throttle: throttle{seen: now.Position()},
		made: make(chan exported, exportAhead), sent: make(chan struct{}),
	}
	// Another goroutine sends the messages. It ends with the call, even if it hangs in Send.
	s.sends.Go(func() { e.send(stream.Send) })
	err = e.read(ctx)
	if err == nil {
		var summary *runlogv1.ExportSummary
		if summary, err = s.exportSummary(ctx, w, &answer); err == nil {
			err = e.put(ctx, exported{ExportEventsResponse: &runlogv1.ExportEventsResponse{ReadThrough: wire.Instant(answer.through), Summary: summary}})
		}
	}
	close(e.made)
	if err != nil {
		return err
	}
	return e.end(ctx)
}

// exportSummary returns the last message of an export.
func (s *Service) exportSummary(ctx context.Context, w *window, answer *windowAnswer) (*runlogv1.ExportSummary, error) {
	position := answer.positions.End
	if position > 0 {
		position--
	}
	f := &w.filter
	st := proof.Export{
		Cluster: s.node.ClusterID(), From: w.from, To: w.to, TenantID: f.TenantID, ProjectID: f.ProjectID, EnvironmentID: f.EnvironmentID,
		PlanID: f.PlanID, RunID: f.RunID, StepID: f.StepID, Types: f.Types,
		Count: w.at.count, Digest: w.at.digest, CompleteThrough: answer.through, Position: uint64(position),
	}
	statement := proof.Unsigned(st.Statement())
	if w.vouched {
		var err error
		if statement, _, err = s.opts.Signer.Sign(ctx, st.Statement()); err != nil {
			return nil, err
		}
	}
	return &runlogv1.ExportSummary{
		Count: w.at.count, Digest: w.at.digest.String(), CompleteThrough: wire.Timestamp(answer.through), Closed: answer.closed(w),
		From: wire.Instant(w.from), To: wire.Instant(w.to), ClusterId: s.opts.ClusterName, Position: rpc.FormatPosition(s.node.Store().Incarnation(), position),
		Statement: statement,
	}, nil
}

// exporting reads a window and makes the messages of its export.
type exporting struct {
	s         *Service
	w         *window
	positions storage.PositionRange
	form      runlogv1.PayloadForm_Form
	tree      uint64 // the size of the tree in which events are proved; 0: they are not
	throttle  throttle
	made      chan exported
	sent      chan struct{} // closed after the last Send, with sendErr
	sendErr   error
}

func (e *exporting) read(ctx context.Context) error {
	for more := true; more; {
		m, rest, err := e.readOn(ctx)
		if err == nil && m.ExportEventsResponse != nil {
			err = e.put(ctx, m)
		}
		if err != nil {
			return err
		}
		more = rest
	}
	return nil
}

// readOn reads from one view of the store for exportHold. If the queue stays full until then, it
// returns the message that waits, so that no view is held meanwhile. A reader that is slower than
// the node finds the queue full all the time: a new view for each message knows no run, and looks
// up each again.
func (e *exporting) readOn(ctx context.Context) (waiting exported, more bool, err error) {
	r, err := e.s.node.Store().OpenWindow(e.positions, e.w.filter, e.w.at.cursor)
	if err != nil {
		return exported{}, false, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	hold := time.NewTimer(exportHold)
	defer hold.Stop()
	proofs := exportProofs{s: e.s, size: e.tree}
	more = true
	for begun, told := time.Now(), time.Now(); more && time.Since(begun) < exportHold; {
		m := &runlogv1.ExportEventsResponse{}
		bytes := 0
		for more && len(m.Events) < exportEvents && bytes < exportBytes && time.Since(told) < exportTell {
			if ctx.Err() != nil {
				return exported{}, false, context.Cause(ctx)
			}
			var records []storage.Record
			worked := time.Now()
			if records, more, err = r.Next(min(exportSlice, exportEvents-len(m.Events))); err != nil {
				return exported{}, false, err
			}
			n, err := e.add(m, records)
			if err != nil {
				return exported{}, false, err
			}
			proofs.add(records)
			bytes += n
			e.throttle.rest(ctx, e.s.node, time.Since(worked))
		}
		if len(m.Events) == 0 && !more {
			return exported{}, false, nil // The summary follows.
		}
		if err := proofs.end(ctx, m); err != nil {
			return exported{}, false, err
		}
		told = time.Now()
		e.w.at.cursor = r.Cursor()
		if through := r.Stamp(); through > 0 {
			m.ReadThrough = wire.Timestamp(through)
		}
		m.ResumeToken = e.s.windowToken(e.w)
		made, err := e.draw(m, bytes)
		if err != nil {
			return exported{}, false, err
		}
		if !e.hand(ctx, made, hold.C) {
			return made, more, nil
		}
	}
	return exported{}, more, nil
}

// add appends records to a message and returns their size.
func (e *exporting) add(m *runlogv1.ExportEventsResponse, records []storage.Record) (bytes int, err error) {
	for i := range records {
		record, err := wire.Record(&records[i], e.form)
		if err != nil {
			return 0, err
		}
		e.w.at.add(&records[i])
		bytes += exportEnvelope + len(records[i].Payload)
		m.Events = append(m.Events, record)
	}
	return bytes, nil
}
