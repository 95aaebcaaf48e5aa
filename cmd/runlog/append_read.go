package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

const (
	// maxLineBytes holds the largest payload that can be configured (1 MiB, ENV-7) with every
	// character escaped, and the envelope around it.
	maxLineBytes = 2 << 20
	// chunkBytes of input are handed on together, so that the events of a run meet in one request.
	chunkBytes = 256 << 10
	// maxOddTypes are warned of; a producer that makes up its types needs no more.
	maxOddTypes = 100
)

// origin is the line that an event came from.
type origin struct {
	file string
	line int
}

func (o origin) String() string { return fmt.Sprintf("%s:%d", o.file, o.line) }

// item is one event of the input.
type item struct {
	origin
	event *runlogv1.EventWrite
	bytes int // of its line, which is longer than its wire form

	// Of a record that is imported.
	record []byte
}

// refusal is a line that was not stored. runID is empty when the line did not tell.
type refusal struct {
	origin
	runID string
	why   string
}

// chunk is a stretch of the input. err ends the input.
type chunk struct {
	items    []item
	refused  []refusal
	warnings []string
	bytes    int
	err      error
}

// intake reads the input and hands it on in chunks.
type intake struct {
	paths   []string
	stdin   io.Reader
	records bool              // the lines are records, which are imported
	sources map[string]source // of records, by path
	checked bool              // the input was read before, and every line was a record
	out     chan<- chunk
	next    chunk // what is not handed on yet
	// odd holds the unknown event types that were warned of, at most maxOddTypes.
	odd map[string]bool
}

// read reads every path in turn and closes out at the end. It ends early with the context, though
// not before a blocked read of stdin returns.
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
	// What is added to it meanwhile was not checked.
	return in.readLines(ctx, from.name, io.LimitReader(file, from.size))
}

func (in *intake) readLines(ctx context.Context, name string, r io.Reader) error {
	lines := lineReader{r: bufio.NewReaderSize(r, chunkBytes)}
	for {
		text, size, err := lines.next()
		in.next.bytes += size
		if text = bytes.TrimSpace(text); len(text) > 0 {
			in.take(origin{name, lines.number}, text)
		}
		switch {
		case errors.Is(err, errLineTooLong):
			in.refuse(origin{name, lines.number}, "", "the line is longer than 2 MiB; keep the data elsewhere and send a reference to it as an artifact")
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		}
		// A producer that pauses (tail -f) must not wait for its chunk to fill.
		if in.next.bytes >= chunkBytes || !lines.ready() {
			if !in.hand(ctx) {
				return ctx.Err()
			}
		}
	}
}

// take parses one line. Whether the event is valid is for the server to say: it knows its own
// policy.
func (in *intake) take(at origin, text []byte) {
	it := item{origin: at, bytes: len(text)}
	var err error
	if in.records {
		var r contract.Record
		r, err = contract.ParseRecord(text)
		it.event, it.record = r.Event, text
	} else {
		it.event, err = contract.ParseEvent(text)
	}
	switch {
	case err != nil:
		in.refuse(at, "", whyNoEvent(text, err))
	case it.event.GetRunId() == "":
		in.refuse(at, "", string(contract.ReasonInvalidArgumentField)+": runId is required: name the run that the event belongs to")
	default:
		in.next.items = append(in.next.items, it)
		in.warnOfType(at, it.event.GetEventType())
	}
}

// warnOfType warns once of a type that is probably a known one mistyped: the server keeps such
// events and takes nothing from them (ENV-6).
func (in *intake) warnOfType(at origin, name string) {
	likely, ok := contract.LikelyType(name)
	if !ok || in.odd[name] || len(in.odd) == maxOddTypes {
		return
	}
	if in.odd == nil {
		in.odd = make(map[string]bool)
	}
	in.odd[name] = true
	in.next.warnings = append(in.next.warnings,
		fmt.Sprintf("%s: warning: event type %q is not known, and changes no snapshot; did you mean %s?", at, name, likely))
}

// whyNoEvent puts into words why a line is no event, also where the whole file has another shape.
func whyNoEvent(text []byte, err error) string {
	why := err.Error()
	if e, ok := errors.AsType[*contract.Error](err); ok {
		why = explainLine(e)
	}
	switch {
	case text[0] == '[':
		why += "; a JSON array is no input: write one object a line (jq -c '.[]' does)"
	case text[len(text)-1] == '{' || text[len(text)-1] == '[' || text[len(text)-1] == ',':
		why += "; an event is one line: write each object without line breaks (jq -c . does)"
	}
	return why
}

func (in *intake) refuse(at origin, run, why string) {
	in.next.refused = append(in.next.refused, refusal{at, run, why})
	if in.checked {
		in.next.err = errInputChanged
	}
}

// hand gives the chunk away and tells whether to go on.
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

// next returns a line in memory of its own, which events keep parts of, and how many bytes it took
// from the stream. With errLineTooLong the line was skipped; with another error, io.EOF too, the
// line may hold what came before it.
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

// ready tells whether a further line is at hand without waiting for the stream.
func (l *lineReader) ready() bool {
	buffered, _ := l.r.Peek(l.r.Buffered())
	return bytes.IndexByte(buffered, '\n') >= 0
}
