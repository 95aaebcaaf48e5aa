package intake

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"

	"runlog/audit/export"
	"runlog/proto/contract"
	"runlog/proto/contract/jsontext"
	runlogv1 "runlog/proto/runlog/v1"
)

const (
	// maxLineBytes holds the largest payload that can be configured (1 MiB, ENV-7) with every
	// character escaped, and the envelope around it.
	maxLineBytes = 2 << 20
	// chunkBytes is the size of a chunk, so that events of a run share a request.
	chunkBytes = 256 << 10
)

// origin is the line that an event came from.
type origin struct {
	file  string
	line  int
	place int // in the whole input, from 1
}

func (o origin) String() string { return fmt.Sprintf("%s:%d", o.file, o.line) }

// item is one event of the input.
type item struct {
	origin
	event *runlogv1.EventWrite
	bytes int // of its line, which is longer than its encoding on the wire
	// kept: the line is a record of an export or a salvage, of an event that was stored once.
	kept bool

	// Of a record that is imported.
	record []byte
}

// refusal is a line that was not stored. runID is empty if the line names no run.
type refusal struct {
	origin
	runID string
	why   string
}

// chunk is a part of the input. err ends the input.
type chunk struct {
	items   []item
	refused []refusal
	bytes   int
	err     error
}

// intake reads the input and delivers it in chunks.
type intake struct {
	paths   []string
	stdin   io.Reader
	records bool              // the lines are records to import
	sources map[string]source // of records, by path
	checked bool              // an earlier reading found a record in every line
	out     chan<- chunk
	next    chunk // that is not delivered yet
	place   int   // of the line read last, in the whole input
}

// read reads every path in turn and closes out at the end. If the context ends, read ends early,
// but not before a blocked read of stdin returns.
func (in *intake) read(ctx context.Context) {
	defer close(in.out)
	for _, path := range in.paths {
		if err := in.readPath(ctx, path); err != nil {
			in.next.err = err
		}
		if !in.hand(ctx) {
			return
		}
	}
}

func (in *intake) readPath(ctx context.Context, path string) error {
	if path == "-" {
		return in.readLines(ctx, "stdin", in.stdin)
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if !in.records {
		return in.readLines(ctx, path, file)
	}
	from := in.sources[path]
	if err := from.same(file); err != nil {
		return err
	}
	// Bytes that were appended since were not checked.
	return in.readLines(ctx, from.name, io.LimitReader(file, from.size))
}

func (in *intake) readLines(ctx context.Context, name string, r io.Reader) error {
	lines := lineReader{r: bufio.NewReaderSize(r, chunkBytes)}
	for {
		text, size, err := lines.next()
		in.next.bytes += size
		in.place++
		at := origin{name, lines.number, in.place}
		if text = bytes.TrimSpace(text); len(text) > 0 {
			in.take(at, text)
		}
		switch {
		case errors.Is(err, errLineTooLong):
			in.refuse(at, "", "the line is longer than 2 MiB; store the data elsewhere and send a reference to it as an artifact")
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		}
		// Lines must not wait for a full chunk while their producer pauses (tail -f).
		if in.next.bytes >= chunkBytes || !lines.ready() {
			if !in.hand(ctx) {
				return ctx.Err()
			}
		}
	}
}

// take parses one line. The server validates the event, because it knows its policy.
func (in *intake) take(at origin, text []byte) {
	it := item{origin: at, bytes: len(text)}
	var err error
	switch {
	case in.records:
		var r contract.Record
		r, err = contract.ParseRecord(text)
		it.event, it.record = r.Event, text
	case export.IsManifestLine(text):
		return
	case export.IsRecordLine(text):
		// As a flat 1.1 event, its payload would have the digests too.
		var r contract.Record
		r, err = contract.ParseRecord(text)
		it.event, it.kept = r.Event, true
	default:
		it.event, err = contract.ParseEvent(text)
	}
	switch {
	case err != nil:
		in.refuse(at, likelyRun(text), whyNoEvent(text, err))
	case it.event.GetRunId() == "":
		in.refuse(at, "", string(contract.ReasonInvalidArgumentField)+": runId is required; name the run of the event")
	default:
		in.next.items = append(in.next.items, it)
	}
}

// runID matches the first runId of a line.
var runID = regexp.MustCompile(`"run_?[iI]d"\s*:\s*("(?:[^"\\]|\\.)*")`)

// likelyRun returns the run that a line which is no event names; empty: none can be read.
func likelyRun(text []byte) (run string) {
	if m := runID.FindSubmatch(text); m == nil || json.Unmarshal(m[1], &run) != nil {
		return ""
	}
	return run
}

// whyNoEvent explains why a line is no event, also if the whole file has another shape.
func whyNoEvent(text []byte, err error) string {
	why := err.Error()
	if e, ok := errors.AsType[*contract.Error](err); ok {
		why = explainLine(e)
	}
	switch {
	case text[0] == '[':
		why += "; a JSON array is no input: write one object a line (jq -c '.[]' does this)"
	case isRequest(text):
		why = string(contract.ReasonInvalidArgumentField) + ": the line is the body of a request: write its events one a line, each with its runId (jq -c '.events[] + {runId: \"RUN\"}' does this)"
	case text[len(text)-1] == '{' || text[len(text)-1] == '[' || text[len(text)-1] == ',':
		why += "; an event is one line: write each object without line breaks (jq -c . does this)"
	}
	return why
}

// isRequest reports whether a line is what AppendEvents takes over HTTP.
func isRequest(text []byte) bool {
	if !json.Valid(text) {
		return false
	}
	events, ok := jsontext.Lookup(text, "events")
	return ok && len(events) > 0 && events[0] == '['
}

func (in *intake) refuse(at origin, run, why string) {
	in.next.refused = append(in.next.refused, refusal{at, run, why})
	if in.checked {
		in.next.err = errInputChanged
	}
}

// hand delivers the chunk and reports whether to go on.
func (in *intake) hand(ctx context.Context) bool {
	select {
	case in.out <- in.next:
		failed := in.next.err != nil
		in.next = chunk{}
		return !failed
	case <-ctx.Done():
		return false
	}
}

var errLineTooLong = errors.New("line too long")

// lineReader cuts a stream into lines.
type lineReader struct {
	r      *bufio.Reader
	number int // of the line returned last, from 1
}

// next returns a line in memory of its own, because events keep parts of it, and the bytes that it
// took from the stream. With errLineTooLong the line was skipped. With another error, also io.EOF,
// the line may have the bytes before the error.
func (l *lineReader) next() (line []byte, size int, err error) {
	l.number++
	tooLong := false
	for {
		part, err := l.r.ReadSlice('\n')
		size += len(part)
		if tooLong = tooLong || len(line)+len(part) > maxLineBytes+1; tooLong {
			line = nil
		} else {
			line = append(line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if tooLong && (err == nil || errors.Is(err, io.EOF)) {
			return nil, size, errLineTooLong
		}
		if l.number == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		return line, size, err
	}
}

// ready reports whether another line is buffered.
func (l *lineReader) ready() bool {
	buffered, _ := l.r.Peek(l.r.Buffered())
	return bytes.IndexByte(buffered, '\n') >= 0
}
