package intake

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"runlog/client/command/output"
	"runlog/client/command/session"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"

	"runlog/client"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

func (a *app) importCommand() *cobra.Command {
	var files []string
	var admin string
	cmd := &cobra.Command{
		Use:   "import [-f FILE]... [FILE]...",
		Short: "Import closed runs of another authority with their runSeq",
		Long: `Read records, one JSON object a line as "runlog events -o json" writes them, and store their events with
their eventId and runSeq, of contract 2.x or 1.1. The time of an import is that of each event's persistedAt,
and what the source said is kept beside it, in original. "-" is the standard input.

The records of one run must come in the order of their runSeq, which may have gaps and need not begin at 1;
runs may be mixed. Only closed runs are imported: one of their events is RunCompleted, RunFailed or
RunCancelled. The whole input is checked before anything is stored, because a missing event cannot be added
later.

Importing a file again stores nothing twice. The import uses the admin listener of a node. With access
control it needs the role admin in all tenants, and decider for runs with decisions, such as StepAttested.`,
		Example: "  runlog import --admin 127.0.0.1:7412 -f records.jsonl\n  runlog events run-1 -o json --server other:7410 | runlog import -",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.importFiles(cmd.Context(), append(files, args...), admin)
		},
	}
	cmd.Flags().StringArrayVarP(&files, "file", "f", nil, "file of JSON lines, or - for standard input; may be repeated")
	session.AdminFlag(cmd, &admin)
	return cmd
}

// importFiles reads the input twice: to check it, and to send it.
func (a *app) importFiles(ctx context.Context, paths []string, admin string) error {
	total, err := inputSize(paths)
	if err != nil {
		return err
	}
	in := intake{records: true, sources: map[string]source{}}
	dir, err := os.MkdirTemp("", "runlog-import-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for i, path := range paths {
		if path == "-" && slices.Contains(paths[:i], "-") {
			continue // The standard input can be read only once.
		}
		from, err := a.source(ctx, path, filepath.Join(dir, strconv.Itoa(i)))
		if err != nil {
			return err
		}
		in.paths = append(in.paths, from.path)
		in.sources[from.path] = from
	}
	i := importer{app: a, admin: admin}
	if err := i.reachable(ctx); err != nil {
		return err
	}
	if err := a.checkRecords(ctx, in); err != nil {
		return err
	}
	in.checked = true
	return a.pumpFiles(ctx, &in, i.send, pumpOptions{total: total})
}

// reachable checks that an admin listener answers, before any input is read.
func (i importer) reachable(ctx context.Context) error {
	req, err := i.app.AdminRequest(ctx, http.MethodGet, i.admin, "/healthz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return output.Errorf(output.ExitUnavailable, "no admin listener answers at %s; name another with --admin", i.admin)
	}
	return resp.Body.Close()
}

// source is a file that is read twice.
type source struct {
	path, name string // name is shown in messages
	size       int64
	modified   time.Time
}

// source returns a file with the input of a path. An input that can be read only once, the standard
// input or a pipe, is copied to the spool file.
func (a *app) source(ctx context.Context, path, spool string) (source, error) {
	from := source{path: path, name: path}
	if path == "-" {
		from.name = "stdin"
	} else if info, err := os.Stat(path); err != nil {
		return source{}, err
	} else if info.Mode().IsRegular() {
		from.size, from.modified = info.Size(), info.ModTime()
		return from, nil
	}
	copied := make(chan error, 1)
	// An interrupted command does not wait for the copy: a read of a terminal or a pipe cannot be
	// cancelled.
	go func() { copied <- a.spool(path, spool) }()
	select {
	case err := <-copied:
		if err != nil {
			return source{}, err
		}
	case <-ctx.Done():
		return source{}, ctx.Err()
	}
	info, err := os.Stat(spool)
	if err != nil {
		return source{}, err
	}
	from.path, from.size, from.modified = spool, info.Size(), info.ModTime()
	return from, nil
}

func (a *app) spool(path, spool string) error {
	in := a.Stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	out, err := os.OpenFile(spool, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

var errInputChanged = output.Errorf(output.ExitRefused, "the input changed during the import; the part that was sent may be stored")

// same refuses a file that has changed.
func (s *source) same(f *os.File) error {
	info, err := f.Stat()
	if err == nil && (info.Size() != s.size || !info.ModTime().Equal(s.modified)) {
		err = fmt.Errorf("%s: %w", s.name, errInputChanged)
	}
	return err
}

// maxFaults bounds the faults that are printed of an input.
const maxFaults = 20

// checked is the state of a run in the check of the input.
type checked struct {
	first  origin
	seq    uint64 // of its last record
	stamp  int64
	closed bool
}

// recordCheck finds the faults of an input that can be found without a node.
type recordCheck struct {
	runs   map[string]*checked
	order  []string // of runs
	seed   maphash.Seed
	keys   map[uint64]struct{} // hashes of runs and keys
	now    int64
	faults int
	stderr io.Writer
}

func (c *recordCheck) fault(at origin, why string) {
	if c.faults++; c.faults <= maxFaults {
		fmt.Fprintf(c.stderr, "%s: %s\n", at, output.OneLine(why))
	}
}

func (c *recordCheck) violations(at origin, bad []contract.Violation) {
	if len(bad) > 0 {
		c.fault(at, explainLine(contract.NewError(bad)))
	}
}

// record checks a record, and that it follows the one before in its run. It does not know the
// policies of the node.
func (c *recordCheck) record(it *item) {
	r, err := contract.ParseRecord(it.record)
	if err != nil {
		c.fault(it.origin, whyNoEvent(it.record, err)) // The intake parsed it before.
		return
	}
	name := it.event.GetRunId()
	run := c.runs[name]
	if run == nil {
		run = &checked{first: it.origin}
		c.runs[name] = run
		c.order = append(c.order, name)
	}
	e, bad := contract.Validate(r.Event, contract.Options{RunID: name, MaxPayloadBytes: contract.LargestMaxPayloadBytes, OpaqueKeys: true})
	if c.violations(it.origin, bad); len(bad) == 0 {
		c.violations(it.origin, r.DigestFaults(&e))
		key := maphash.String(c.seed, name+"\x00"+e.IdempotencyKey)
		if _, twice := c.keys[key]; twice {
			c.fault(it.origin, fmt.Sprintf("has the idempotency key of an earlier record of run %q", name))
		}
		c.keys[key] = struct{}{}
	}
	switch {
	case r.RunSeq <= run.seq:
		c.fault(it.origin, fmt.Sprintf("runSeq %d of run %q comes after %d; sort the records of a run by their runSeq", r.RunSeq, name, run.seq))
	case r.PersistedAt < run.stamp:
		c.fault(it.origin, fmt.Sprintf("persistedAt of runSeq %d of run %q is before that of runSeq %d", r.RunSeq, name, run.seq))
	case r.PersistedAt >= c.now:
		c.fault(it.origin, fmt.Sprintf("persistedAt of runSeq %d of run %q is not in the past", r.RunSeq, name))
	}
	run.seq, run.stamp = max(run.seq, r.RunSeq), max(run.stamp, r.PersistedAt)
	run.closed = run.closed || endsRun(it.event.GetEventType())
}

// checkRecords refuses an input if one of its lines is no record, or one of its runs is not closed.
func (a *app) checkRecords(ctx context.Context, in intake) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	chunks := make(chan chunk)
	in.out = chunks
	go in.read(ctx)
	check := recordCheck{
		runs: map[string]*checked{}, seed: maphash.MakeSeed(), keys: map[uint64]struct{}{},
		now: time.Now().UnixNano(), stderr: a.Stderr,
	}
	for c := range chunks {
		for _, r := range c.refused {
			check.fault(r.origin, r.why)
		}
		for i := range c.items {
			check.record(&c.items[i])
		}
		if c.err != nil {
			return c.err
		}
	}
	for _, name := range check.order {
		if run := check.runs[name]; !run.closed {
			check.fault(run.first, fmt.Sprintf("run %q has no RunCompleted, RunFailed or RunCancelled; only closed runs can be imported", name))
		}
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case check.faults > 0:
		return output.Errorf(output.ExitRefused, "%s", output.Plural(check.faults, "fault")+" in the input, of which nothing was imported")
	default:
		return nil
	}
}

var errImportRefused = output.Errorf(output.ExitRefused, "refused, see above; the lines before it may be stored: correct that line, leave those before it as they are, and import the whole input again")

// importer stores batches of records of one run.
type importer struct {
	app   *app
	admin string // address
}

// send stores a batch, all or nothing. A refusal ends the import: later records of the run would
// leave a gap.
func (i importer) send(ctx context.Context, batch []item) outcome {
	o := outcome{run: batch[0].event.GetRunId()}
	res, err := i.patiently(ctx, batch)
	if err == nil {
		o.err = o.add(batch, res)
		return o
	}
	e, ok := errors.AsType[*client.Error](err)
	if !ok || e.Retryable() || e.Code == codes.Unauthenticated || e.Code == codes.PermissionDenied {
		o.err = err // It is not about a line.
		return o
	}
	why := refusedEvents(e, len(batch))
	if len(why) == 0 {
		why = map[int]string{0: session.Refusal(e.Name(), e.Message, e.Violations)}
	}
	o.refuse(batch, why, true)
	o.err = errImportRefused
	return o
}

const (
	// importTries bounds the attempts to send a batch to a node that cannot take it now.
	// importPause is between two attempts, unless the node asks for more.
	importTries = 30
	importPause = 200 * time.Millisecond
)

// patiently posts a batch, and retries while the node is starting or overloaded.
func (i importer) patiently(ctx context.Context, batch []item) (*runlogv1.AppendEventsResponse, error) {
	for try := 1; ; try++ {
		res, err := i.post(ctx, batch)
		e, ok := errors.AsType[*client.Error](err)
		if !ok || !e.Retryable() || try == importTries {
			return res, err
		}
		select {
		case <-time.After(max(importPause, e.RetryAfter)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (i importer) post(ctx context.Context, batch []item) (*runlogv1.AppendEventsResponse, error) {
	if i.app.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, i.app.Timeout)
		defer cancel()
	}
	var body bytes.Buffer
	for _, it := range batch {
		body.Write(it.record)
		body.WriteByte('\n')
	}
	req, err := i.app.AdminRequest(ctx, http.MethodPost, i.admin, "/import", &body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	resp, err := http.DefaultClient.Do(req)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, output.Errorf(output.ExitUnavailable, "admin listener %s cannot be reached; name another with --admin", req.URL.Host)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(bufio.NewReader(resp.Body))
	if err != nil {
		return nil, err
	}
	answer := &runlogv1.AppendEventsResponse{}
	if resp.StatusCode == http.StatusOK && protojson.Unmarshal(text, answer) == nil {
		return answer, nil
	}
	e := session.AdminError(text)
	switch {
	case e == nil:
		return nil, output.Errorf(output.ExitFailed, "%s answered %s; name the admin listener with --admin", req.URL.Host, resp.Status)
	case slices.ContainsFunc(e.Violations, func(v client.Violation) bool { return v.Field == "Content-Type" }):
		return nil, output.Errorf(output.ExitFailed, "%s", req.URL.Host+" takes no records; name the admin listener with --admin")
	}
	return nil, e
}

func endsRun(eventType string) bool {
	return eventType == contract.RunCompleted || eventType == contract.RunFailed || eventType == contract.RunCancelled
}
