package runs

import (
	"bufio"
	"fmt"
	"strconv"
	"time"

	"runlog/client/command/output"

	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
)

// watchPrinter writes a line for each message and flushes it, so that a pipe gets it at once.
type watchPrinter struct {
	out    *bufio.Writer
	json   bool
	headed bool
}

func (a *app) newWatchPrinter() *watchPrinter {
	return &watchPrinter{out: bufio.NewWriter(a.Stdout), json: a.Format == output.JSON}
}

// Columns have fixed widths: a live table cannot measure later rows.
const (
	watermarkLine = "%-8v  %-10s  %-10s  %-24s  %s\n"
	snapshotLine  = "%-8v  %-10s  %-10s  %-24s  %-9s  %s\n"
	eventLine     = "%-8v  %-24s  %-26s  %-20s  %-8s  %s\n"
	eventOfMany   = "%-24s  %-24s  %-8v  %-26s  %-20s  %s\n"
	runLineOfMany = "%-24s  %-24s  %-8v  %-10s  %s\n"
)

// message prints a message of a watch of one run, and returns the status of the run if the message
// has it. The end of the catch-up has the status of a run that ended before --after-seq.
func (p *watchPrinter) message(res *runlogv1.WatchRunResponse) (runlogv1.RunStatus_Value, error) {
	switch kind := res.GetKind().(type) {
	case *runlogv1.WatchRunResponse_Watermark:
		return kind.Watermark.GetStatus(), p.watermark(kind.Watermark)
	case *runlogv1.WatchRunResponse_Snapshot:
		return kind.Snapshot.GetStatus(), p.snapshot(kind.Snapshot)
	case *runlogv1.WatchRunResponse_Events:
		return 0, p.events(kind.Events.GetEvents())
	default:
		return res.GetCaughtUp().GetWatermark().GetStatus(), nil
	}
}

func (p *watchPrinter) watermark(mark *runlogv1.Watermark) error {
	if p.json {
		return p.line(mark)
	}
	p.head(watermarkLine, "SEQ", "STATUS", "SUBSTATUS", "PERSISTED", "LAG")
	fmt.Fprintf(p.out, watermarkLine, mark.GetLastEventSeq(), runStatus(mark.GetStatus()), output.Dash(mark.GetSubstatus()),
		output.Stamp(mark.GetPersistedAt()), time.Duration(mark.GetLagMs())*time.Millisecond)
	return p.out.Flush()
}

func (p *watchPrinter) snapshot(s *runlogv1.RunSnapshot) error {
	if p.json {
		return p.line(s)
	}
	done := 0
	for _, step := range s.GetSteps() {
		switch step.GetStatus() {
		case runlogv1.StepStatus_SUCCESS, runlogv1.StepStatus_FAILED, runlogv1.StepStatus_SKIPPED:
			done++
		}
	}
	p.head(snapshotLine, "SEQ", "STATUS", "SUBSTATUS", "STARTED", "STEPS", "FAILED")
	fmt.Fprintf(p.out, snapshotLine, s.GetLastEventSeq(), runStatus(s.GetStatus()), output.Dash(s.GetSubstatus()), output.Dash(output.Stamp(s.GetStartedAt())),
		fmt.Sprintf("%d of %d", done, len(s.GetSteps())), strconv.FormatUint(uint64(s.GetFailedSteps()), 10))
	return p.out.Flush()
}

func (p *watchPrinter) events(records []*runlogv1.EventRecord) error {
	for _, record := range records {
		if p.json {
			line, err := output.RecordLine(record)
			if err != nil {
				return err
			}
			fmt.Fprintf(p.out, "%s\n", line)
			continue
		}
		p.head(eventLine, "SEQ", "PERSISTED", "TYPE", "STEP", "ATTEMPT", "PAYLOAD")
		fmt.Fprintf(p.out, eventLine, record.GetRunSeq(), output.Stamp(record.GetPersistedAt()), output.OneLine(record.GetEventType()),
			output.Dash(record.GetStepId()), output.Attempt(record.GetLogicalAttemptId(), record.GetEngineAttemptId()), output.OneLine(output.PayloadText(record)))
	}
	return p.out.Flush()
}

// eventsOfMany prints events of many runs.
func (p *watchPrinter) eventsOfMany(records []*runlogv1.EventRecord) error {
	if p.json {
		return p.events(records)
	}
	for _, record := range records {
		p.head(eventOfMany, "PERSISTED", "RUN", "SEQ", "TYPE", "STEP", "PAYLOAD")
		fmt.Fprintf(p.out, eventOfMany, output.Stamp(record.GetPersistedAt()), output.OneLine(record.GetRunId()), record.GetRunSeq(),
			output.OneLine(record.GetEventType()), output.Dash(record.GetStepId()), output.OneLine(output.PayloadText(record)))
	}
	return p.out.Flush()
}

// run prints the watermark of one of many runs.
func (p *watchPrinter) run(mark *runlogv1.Watermark) error {
	if p.json {
		return p.line(mark)
	}
	p.head(runLineOfMany, "PERSISTED", "RUN", "SEQ", "STATUS", "SUBSTATUS")
	fmt.Fprintf(p.out, runLineOfMany, output.Dash(output.Stamp(mark.GetPersistedAt())), output.OneLine(mark.GetRunId()), mark.GetLastEventSeq(),
		runStatus(mark.GetStatus()), output.Dash(mark.GetSubstatus()))
	return p.out.Flush()
}

func (p *watchPrinter) head(format string, names ...any) {
	if !p.headed {
		fmt.Fprintf(p.out, format, names...)
		p.headed = true
	}
}

func (p *watchPrinter) line(m proto.Message) error {
	line, err := output.JSONLine(m)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.out, "%s\n", line)
	return p.out.Flush()
}
