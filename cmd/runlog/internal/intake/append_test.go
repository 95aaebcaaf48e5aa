package intake

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/bubble"
)

// readAll returns what an intake makes of r, chunk by chunk.
func readAll(t *testing.T, r io.Reader) []chunk {
	t.Helper()
	out := make(chan chunk)
	go (&intake{paths: []string{"-"}, stdin: r, out: out}).read(t.Context())
	var chunks []chunk
	for c := range out {
		chunks = append(chunks, c)
	}
	return chunks
}

func TestIntakeLines(t *testing.T) {
	long := `{"runId":"r","payload":{"x":"` + strings.Repeat("a", maxLineBytes) + `"}}`
	fits := `{"runId":"fits","payload":{"x":"` + strings.Repeat("a", maxLineBytes-40) + `"}}`
	for name, test := range map[string]struct {
		input string
		want  string // "line:run" of events, "line!" of refusals
	}{
		"empty":              {"", ""},
		"plain":              {"{\"runId\":\"a\"}\n{\"runId\":\"b\"}\n", "1:a 2:b"},
		"no final line feed": {"{\"runId\":\"a\"}\n{\"runId\":\"b\"}", "1:a 2:b"},
		"byte order mark":    {"\ufeff{\"runId\":\"a\"}\n", "1:a"},
		"only at the start":  {"{\"runId\":\"a\"}\n\ufeff{\"runId\":\"b\"}\n", "1:a 2!"},
		"blank lines, CRLF":  {"\r\n{\"runId\":\"a\"}\r\n \t\n\n{\"runId\":\"b\"}\r\n", "2:a 5:b"},
		"bad ones between":   {"{\"runId\":\"a\"}\nno\n{}\n{\"runId\":\"b\"}\n", "1:a 2! 3! 4:b"},
		"too long":           {"{\"runId\":\"a\"}\n" + long + "\n{\"runId\":\"b\"}\n", "1:a 2! 3:b"},
		"too long at end":    {long, "1!"},
		"just fits":          {fits + "\n{\"runId\":\"b\"}", "1:fits 2:b"},
	} {
		t.Run(name, func(t *testing.T) {
			type entry struct {
				line int
				text string
			}
			var got []entry
			size := 0
			for _, c := range readAll(t, strings.NewReader(test.input)) {
				size += c.bytes
				for _, it := range c.items {
					got = append(got, entry{it.line, fmt.Sprintf("%d:%s", it.line, it.event.GetRunId())})
				}
				for _, r := range c.refused {
					got = append(got, entry{r.line, fmt.Sprintf("%d!", r.line)})
				}
				if c.err != nil {
					t.Error(c.err)
				}
			}
			slices.SortFunc(got, func(a, b entry) int { return a.line - b.line })
			var texts []string
			for _, e := range got {
				texts = append(texts, e.text)
			}
			if text := strings.Join(texts, " "); text != test.want {
				t.Errorf("got %q, want %q", text, test.want)
			}
			if size != len(test.input) {
				t.Errorf("counted %d of %d bytes", size, len(test.input))
			}
		})
	}
}

// FuzzIntake checks against a plain split that every line is taken or refused under its own number,
// however the stream is cut.
func FuzzIntake(f *testing.F) {
	f.Add([]byte("\ufeff{\"runId\":\"a\"}\r\n\n no \n{}"), 1)
	f.Add([]byte("{\"runId\":\"a\",\"payload\":{\"x\":[1,2]}}\n"), 7)
	f.Fuzz(func(t *testing.T, input []byte, step int) {
		var want []int
		for i, line := range bytes.Split(bytes.TrimPrefix(input, []byte("\xef\xbb\xbf")), []byte("\n")) {
			if len(bytes.TrimSpace(line)) > 0 {
				want = append(want, i+1)
			}
		}
		var got []int
		for _, c := range readAll(t, &stepReader{input, 1 + step&0xff}) {
			for _, it := range c.items {
				got = append(got, it.line)
			}
			for _, r := range c.refused {
				got = append(got, r.line)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("lines %v, want %v", got, want)
		}
	})
}

// stepReader gives at most step bytes at a time.
type stepReader struct {
	rest []byte
	step int
}

func (r *stepReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.rest[:min(r.step, len(r.rest))])
	r.rest = r.rest[n:]
	return n, nil
}

func TestIntakeFails(t *testing.T) {
	broken := io.MultiReader(strings.NewReader("{\"runId\":\"a\"}\n"), errReader{errors.New("disk on fire")})
	chunks := readAll(t, broken)
	last := chunks[len(chunks)-1]
	if last.err == nil || last.err.Error() != "stdin: disk on fire" || len(chunks[0].items) != 1 {
		t.Errorf("got %+v", chunks)
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// TestIntakeDoesNotHoldBack checks that a producer that pauses has its lines sent meanwhile.
func TestIntakeDoesNotHoldBack(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	out := make(chan chunk)
	go (&intake{paths: []string{"-"}, stdin: r, out: out}).read(t.Context())
	go io.WriteString(w, "{\"runId\":\"a\"}\n{\"runId\":\"a\"}\n{\"run")
	if c := <-out; len(c.items) != 2 {
		t.Errorf("got %+v, want the two whole lines", c)
	}
}

// recorder is a send function that notes what it was given.
type recorder struct {
	mu struct {
		sync.Mutex
		batches map[string][][]int // run → batches → lines
		flying  map[string]bool
		peak    int
	}
	fail error
}

func (r *recorder) take(_ context.Context, batch []item) outcome {
	run := batch[0].event.GetRunId()
	r.mu.Lock()
	if r.mu.batches == nil {
		r.mu.batches, r.mu.flying = make(map[string][][]int), make(map[string]bool)
	}
	if r.mu.flying[run] {
		panic("two requests of one run at a time")
	}
	r.mu.flying[run] = true
	r.mu.peak = max(r.mu.peak, len(r.mu.flying))
	var lines []int
	for _, it := range batch {
		lines = append(lines, it.line)
	}
	r.mu.batches[run] = append(r.mu.batches[run], lines)
	r.mu.Unlock()

	time.Sleep(10 * time.Millisecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.flying, run)
	o := outcome{run: run, err: r.fail}
	for _, it := range batch {
		o.results = append(o.results, stored{it.origin, it.event.GetEventType(), it.kept, &runlogv1.AppendResult{Persisted: true}})
	}
	return o
}

// inputOf makes one chunk of n events, of runs in turn, each of a line of size bytes.
func inputOf(n, runs, size int) chunk {
	var c chunk
	for line := range n {
		event := &runlogv1.EventWrite{RunId: fmt.Sprint("run", line%runs)}
		c.items = append(c.items, item{origin: origin{"f", line + 1, line + 1}, event: event, bytes: size})
	}
	return c
}

func newReport() *report {
	return &report{out: bufio.NewWriter(io.Discard), stderr: io.Discard, runs: make(map[string]*runTotal), odd: make(map[string]bool)}
}

func TestGrouping(t *testing.T) {
	for name, test := range map[string]struct {
		chunks  []chunk
		batches []int // sizes of the batches of run0
		peak    int
	}{
		"one run, cut by events": {chunks: []chunk{inputOf(1201, 1, 100)}, batches: []int{500, 500, 201}, peak: 1},
		"one run, cut by bytes":  {chunks: []chunk{inputOf(5, 1, 400<<10)}, batches: []int{2, 2, 1}, peak: 1},
		"one event over the cut": {chunks: []chunk{inputOf(2, 1, 2<<20)}, batches: []int{1, 1}, peak: 1},
		"runs side by side":      {chunks: []chunk{inputOf(60, 20, 100)}, batches: []int{3}, peak: maxFlying},
		"chunks meet in a queue": {chunks: []chunk{inputOf(2, 1, 1), inputOf(3, 1, 1), inputOf(4, 1, 1)}, batches: []int{2, 7}, peak: 1},
		"reading waits for room": {chunks: []chunk{inputOf(16, 1, 1<<20), inputOf(1, 1, 1)}, batches: []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, peak: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in := make(chan chunk)
				go func() {
					for _, c := range test.chunks {
						in <- c
					}
					close(in)
				}()
				var r recorder
				rep := newReport()
				if err := newGrouper(r.take, rep, nil).pump(t.Context(), in); err != nil {
					t.Fatal(err)
				}
				var sizes []int
				for _, batch := range r.mu.batches["run0"] {
					sizes = append(sizes, len(batch))
				}
				if !slices.Equal(sizes, test.batches) || r.mu.peak != test.peak {
					t.Errorf("run0 in batches of %v, %d at a time; want %v, %d", sizes, r.mu.peak, test.batches, test.peak)
				}
				if rep.total.Inserted != rep.total.Read || rep.total.Read == 0 {
					t.Errorf("%d of %d events stored", rep.total.Inserted, rep.total.Read)
				}
			})
		})
	}
}

func TestGroupingKeepsTheOrderOfEachRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := make(chan chunk, 1)
		in <- inputOf(5000, 7, 1000)
		close(in)
		var r recorder
		if err := newGrouper(r.take, newReport(), nil).pump(t.Context(), in); err != nil {
			t.Fatal(err)
		}
		count := 0
		for run, batches := range r.mu.batches {
			lines := slices.Concat(batches...)
			count += len(lines)
			if !slices.IsSorted(lines) {
				t.Errorf("%s out of order", run)
			}
		}
		if count != 5000 {
			t.Errorf("sent %d of 5000 events", count)
		}
	})
}

func TestGroupingStopsAtAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := make(chan chunk, 1)
		in <- inputOf(40, 20, 100) // and never closed: the producer lives on
		r := recorder{fail: errors.New("gone")}
		err := newGrouper(r.take, newReport(), nil).pump(t.Context(), in)
		if err == nil || err.Error() != "gone" || len(r.mu.batches) > 2*maxFlying {
			t.Errorf("%v after %d runs", err, len(r.mu.batches))
		}
	})
}

func TestSummaryIsBounded(t *testing.T) {
	rep := newReport()
	var out bytes.Buffer
	rep.out = bufio.NewWriter(&out)
	rep.taken(inputOf(3*maxRunsListed, maxRunsListed+500, 10))
	if err := rep.end(time.Second, 0); err != nil {
		t.Fatal(err)
	}
	if len(rep.runs) != maxRunsListed || !strings.Contains(out.String(), "(further runs)") || rep.others.Read != 1000 {
		t.Errorf("%d runs kept, %d events of others", len(rep.runs), rep.others.Read)
	}
}

// refuser stores events except those of the lines in bad, and blames them in the given way.
type refuser struct {
	bad   []string // step ids
	blame func(indexes []int) *client.Error
	calls int
}

func (r *refuser) append(_ context.Context, req *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
	r.calls++
	var bad []int
	res := &runlogv1.AppendEventsResponse{LastSeq: 99}
	for i, event := range req.GetEvents() {
		if slices.Contains(r.bad, event.GetStepId()) {
			bad = append(bad, i)
		}
		res.Results = append(res.Results, &runlogv1.AppendResult{EventId: event.GetStepId()})
	}
	if len(bad) > 0 {
		return nil, r.blame(bad)
	}
	return res, nil
}

func TestSenderTakesOutRefusedEvents(t *testing.T) {
	invalid := client.Error{Code: codes.InvalidArgument, Reason: "BAD", Message: "bad event"}
	byIndex := func(indexes []int) *client.Error {
		e := invalid
		e.Metadata = map[string]string{"index": fmt.Sprint(indexes[0])}
		return &e
	}
	byViolations := func(indexes []int) *client.Error {
		e := *byIndex(indexes)
		for _, i := range indexes {
			e.Violations = append(e.Violations, client.Violation{Field: fmt.Sprintf("events[%d].stepId", i), Description: "is bad"})
		}
		return &e
	}
	byNothing := func([]int) *client.Error { e := invalid; return &e }
	astray := func([]int) *client.Error {
		e := invalid
		e.Metadata = map[string]string{"index": "77"}
		e.Violations = []client.Violation{{Field: "events[x].stepId"}, {Field: "runId"}, {Field: "events[5"}}
		return &e
	}
	for name, test := range map[string]struct {
		blame   func([]int) *client.Error
		bad     []string
		results string
		calls   int
		why     string
		before  string // what is stored without keepGoing
	}{
		"none":                     {byIndex, nil, "abcdef", 1, "", "abcdef"},
		"by index, one at a time":  {byIndex, []string{"b", "e"}, "acdf", 3, "BAD: bad event", "a"},
		"by violations, at once":   {byViolations, []string{"b", "e"}, "acdf", 2, "BAD: stepId is bad", "a"},
		"by halving":               {byNothing, []string{"b"}, "acdef", 7, "BAD: bad event", "a"},
		"two by halving":           {byNothing, []string{"c", "f"}, "abde", 11, "BAD: bad event", "ab"},
		"by halving, blamed badly": {astray, []string{"f"}, "abcde", 7, "BAD: events[x].stepId; runId; events[5", "abcde"},
		"all of them":              {byViolations, []string{"a", "b", "c", "d", "e", "f"}, "", 1, "BAD: stepId is bad", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got, want := sentBefore(t, test.blame, test.bad), test.before; got != want {
				t.Errorf("stored %q and nothing behind it, want %q", got, want)
			}
			var batch []item
			for i, step := range strings.Split("abcdef", "") {
				batch = append(batch, item{origin: origin{"f", i + 1, i + 1}, event: &runlogv1.EventWrite{RunId: "r", StepId: step}, bytes: 1})
			}
			r := &refuser{bad: test.bad, blame: test.blame}
			o := sender{r.append, true}.send(t.Context(), batch)
			got := ""
			for _, result := range o.results {
				got += result.GetEventId()
				if want := string(rune('a' + result.line - 1)); result.GetEventId() != want {
					t.Errorf("line %d got the result of %s", result.line, result.GetEventId())
				}
			}
			if o.err != nil || got != test.results || r.calls != test.calls {
				t.Errorf("stored %q with %d calls (%v), want %q with %d", got, r.calls, o.err, test.results, test.calls)
			}
			var refused []string
			for _, refusal := range o.refused {
				refused = append(refused, string(rune('a'+refusal.line-1)))
				if refusal.why != test.why {
					t.Errorf("why %q, want %q", refusal.why, test.why)
				}
			}
			slices.Sort(refused)
			if !slices.Equal(refused, test.bad) {
				t.Errorf("refused %v, want %v", refused, test.bad)
			}
		})
	}
}

// sentBefore sends events a to f without keepGoing, and returns those that are stored. Exactly one
// other is refused, and those behind it are skipped.
func sentBefore(t *testing.T, blame func([]int) *client.Error, bad []string) (got string) {
	t.Helper()
	var batch []item
	for i, step := range strings.Split("abcdef", "") {
		batch = append(batch, item{origin: origin{"f", i + 1, i + 1}, event: &runlogv1.EventWrite{RunId: "r", StepId: step}, bytes: 1})
	}
	r := &refuser{bad: bad, blame: blame}
	o := sender{r.append, false}.send(t.Context(), batch)
	for _, result := range o.results {
		got += result.GetEventId()
	}
	if len(o.refused) > 1 || len(got)+len(o.refused)+o.skipped != len(batch) || len(o.refused) == 1 && o.refused[0].line != len(got)+1 {
		t.Errorf("stored %q, refused %v, skipped %d", got, o.refused, o.skipped)
	}
	return got
}

// TestRunsStopAtTheirFirstRefusedLine: nothing of a run is sent behind a line of it that was
// refused, here or by the server; other runs go on.
func TestRunsStopAtTheirFirstRefusedLine(t *testing.T) {
	lines := []string{
		`{"runId":"a","stepId":"1"}`, `{"runId":"b","stepId":"1"}`,
		`{"runId":"a","stepId":"bad"}`, // refused by the server
		`{"runId":"b","no":1}`,         // refused here
		`{"runId":"a","stepId":"2"}`, `{"runId":"b","stepId":"2"}`, `{"runId":"c","stepId":"1"}`,
		`{"run_id": "d", "stepId"`, // cut off
		`{"runId":"d","stepId":"1"}`, `garbage`, `{"runId":"c","stepId":"2"}`,
	}
	for _, size := range []int{1, 1 << 16} { // of what the input gives at a time
		synctest.Test(t, func(t *testing.T) {
			in := make(chan chunk)
			go (&intake{paths: []string{"-"}, stdin: &stepReader{[]byte(strings.Join(lines, "\n")), size}, out: in}).read(t.Context())
			r := &refuser{bad: []string{"bad"}, blame: func(indexes []int) *client.Error {
				return &client.Error{Code: codes.InvalidArgument, Metadata: map[string]string{"index": fmt.Sprint(indexes[0])}}
			}}
			var stored []string
			send := func(ctx context.Context, batch []item) outcome {
				o := sender{r.append, false}.send(ctx, batch)
				for _, s := range o.results {
					stored = append(stored, fmt.Sprint(o.run, s.GetEventId()))
				}
				return o
			}
			var one sync.Mutex
			rep := newReport()
			g := newGrouper(func(ctx context.Context, batch []item) outcome {
				one.Lock()
				defer one.Unlock()
				return send(ctx, batch)
			}, rep, nil)
			g.stopRuns = true
			if err := g.pump(t.Context(), in); err != nil {
				t.Fatal(err)
			}
			slices.Sort(stored)
			if got, want := strings.Join(stored, " "), "a1 b1 c1 c2"; got != want {
				t.Errorf("stored %s, want %s", got, want)
			}
			if rep.total.Refused != 4 || rep.total.Skipped != 3 || rep.total.Read != 11 {
				t.Errorf("%+v", rep.total)
			}
		})
	}
}

func TestSenderEndsOnFailure(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, failure := range []error{
			&client.Error{Code: codes.Unavailable, Reason: "NO_LEADER"},
			&client.Error{Code: codes.ResourceExhausted, Reason: "OVERLOADED"},
			errors.New("no client error"),
		} {
			calls := 0
			s := sender{func(context.Context, *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
				calls++
				return nil, failure
			}, true}
			if o := s.send(t.Context(), inputOf(3, 1, 1).items); !errors.Is(o.err, failure) || calls != 1 {
				t.Errorf("%v: %v after %d calls", failure, o.err, calls)
			}
		}
		short := sender{func(context.Context, *runlogv1.AppendEventsRequest) (*runlogv1.AppendEventsResponse, error) {
			return &runlogv1.AppendEventsResponse{}, nil
		}, true}
		if o := short.send(t.Context(), inputOf(3, 1, 1).items); o.err == nil {
			t.Error("an answer without results was taken")
		}
	})
}
