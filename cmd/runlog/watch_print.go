package main

import (
	"bufio"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
)

// watchPrinter writes one line a message at once, so that a pipe sees it when it happens.
type watchPrinter struct {
	out    *bufio.Writer
	json   bool
	headed bool
}

func (a *app) newWatchPrinter() *watchPrinter {
	return &watchPrinter{out: bufio.NewWriter(a.stdout), json: a.format == formatJSON}
}

// Lines have fixed widths: a live table cannot measure what is still to come.
const (
	watermarkLine = "%-8v  %-10s  %-10s  %-24s  %s\n"
	snapshotLine  = "%-8v  %-10s  %-10s  %-24s  %-9s  %s\n"
	eventLine     = "%-8v  %-24s  %-26s  %-20s  %-8s  %s\n"
	runLineOfMany = "%-24s  %-24s  %-8v  %-10s  %s\n"
)

// message prints what a watch of one run tells, and returns the run's status, where it tells that.
// The end of the catch-up tells where the run is; that counts for one that had ended before
// --after-seq.
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
	fmt.Fprintf(p.out, watermarkLine, mark.GetLastEventSeq(), runStatus(mark.GetStatus()), dash(mark.GetSubstatus()),
		stamp(mark.GetPersistedAt()), time.Duration(mark.GetLagMs())*time.Millisecond)
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
	fmt.Fprintf(p.out, snapshotLine, s.GetLastEventSeq(), runStatus(s.GetStatus()), dash(s.GetSubstatus()), dash(stamp(s.GetStartedAt())),
		fmt.Sprintf("%d of %d", done, len(s.GetSteps())), strconv.FormatUint(uint64(s.GetFailedSteps()), 10))
	return p.out.Flush()
}

func (p *watchPrinter) events(records []*runlogv1.EventRecord) error {
	for _, record := range records {
		if p.json {
			line, err := recordLine(record)
			if err != nil {
				return err
			}
			fmt.Fprintf(p.out, "%s\n", line)
			continue
		}
		p.head(eventLine, "SEQ", "PERSISTED", "TYPE", "STEP", "ATTEMPT", "PAYLOAD")
		fmt.Fprintf(p.out, eventLine, record.GetRunSeq(), stamp(record.GetPersistedAt()), oneLine(record.GetEventType()),
			dash(record.GetStepId()), attempt(record.GetLogicalAttemptId(), record.GetEngineAttemptId()), oneLine(payloadText(record)))
	}
	return p.out.Flush()
}

// run prints the watermark of one of many runs.
func (p *watchPrinter) run(mark *runlogv1.Watermark) error {
	if p.json {
		return p.line(mark)
	}
	p.head(runLineOfMany, "PERSISTED", "RUN", "SEQ", "STATUS", "SUBSTATUS")
	fmt.Fprintf(p.out, runLineOfMany, dash(stamp(mark.GetPersistedAt())), oneLine(mark.GetRunId()), mark.GetLastEventSeq(),
		runStatus(mark.GetStatus()), dash(mark.GetSubstatus()))
	return p.out.Flush()
}

func (p *watchPrinter) head(format string, names ...any) {
	if !p.headed {
		fmt.Fprintf(p.out, format, names...)
		p.headed = true
	}
}

func (p *watchPrinter) line(m proto.Message) error {
	line, err := jsonLine(m)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.out, "%s\n", line)
	return p.out.Flush()
}

// dash stands for text that is not there.
func dash(text string) string {
	if text == "" {
		return "-"
	}
	return oneLine(text)
}
