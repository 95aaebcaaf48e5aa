package audit

import (
	"context"
	"fmt"
	"strings"
	"time"

	"runlog/client/command/output"
	"runlog/client/command/session"
	"runlog/cmd/internal/signingkey"

	"github.com/spf13/cobra"

	"runlog/audit/export"
	"runlog/audit/proof"
	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
)

type auditExportOptions struct {
	windowOptions
	file, format string
	manifest     string // where it goes
	allowOpen    bool
	unsigned     bool // accept an export without a signature
}

func (a *app) auditExportCommand() *cobra.Command {
	var opts auditExportOptions
	cmd := &cobra.Command{
		Use:   "export --from TIME [--to TIME] -f FILE",
		Short: "Write the events of a window to a file that can be verified",
		Long: `Write the events of a window to a file of JSON lines, CSV or Parquet, in the order in which the cluster recorded them.
The file ends with a manifest: the window, the filter, the count and the digest of the events, signed by the cluster. "runlog
audit verify FILE" checks it without a server. With --manifest=sidecar, JSON lines and CSV have their manifest in a file of its
own, FILE.manifest. Then sqlite3, pandas, DuckDB and spreadsheets read the export as it is. Keep both files together.

The file gets its name when it is complete; an existing file is never replaced. If a connection or a node is lost, the export
goes on at another node. A window that is not closed is refused, because it may get more events later. An export that the
cluster does not sign is refused, because it could not be told from a forged one.

If the cluster has no event of a --type or of the --tenant at all, or no such --run, stderr says so. With --strict no file is written
then, and the exit code is 3.

` + windowHelp,
		Example: "  runlog audit export --from 2026-02-01 --to 2026-03-01 --tenant acme -f acme-2026-02.parquet\n" +
			"  runlog audit export --from yesterday --to today --manifest=sidecar -f yesterday.csv\n" +
			"  runlog audit export --run run-1 -f - --format jsonl | gzip > run-1.jsonl.gz",
		Args: session.NoArguments("name the file with -f, and a run with --run"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.auditExport(cmd.Context(), opts)
		},
	}
	opts.addFlags(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&opts.file, "file", "f", "", "file to write; - is standard output, for jsonl and csv")
	flags.StringVar(&opts.format, "format", "", strings.Join(export.FormatNames(), ", ")+"; without it, what the name of the file ends in")
	flags.StringVar(&opts.manifest, "manifest", manifestInside, "where the manifest goes: inside, at the end of the file, or sidecar, into FILE"+manifestSuffix)
	flags.BoolVar(&opts.allowOpen, "allow-open", false, "export a window that is not closed, as it is now")
	flags.BoolVar(&opts.unsigned, "allow-unsigned", false, "export also while the cluster lacks its key, without a signature")
	session.Complete(cmd, "format", export.FormatNames()...)
	session.Complete(cmd, "manifest", manifestInside, manifestSidecar)
	return cmd
}

// fileFormat returns the format of the file to write.
func (o *auditExportOptions) fileFormat() (export.Format, error) {
	if o.file == "" {
		return 0, output.UsageError("--file is required: name the file to write, or - for standard output")
	}
	if o.format != "" {
		f, err := export.ParseFormat(o.format)
		if err != nil {
			return 0, output.UsageError("--format %q is none of %s", o.format, strings.Join(export.FormatNames(), ", "))
		}
		if f == export.Parquet && o.file == "-" {
			return 0, output.UsageError("Parquet cannot be written to standard output; name a file")
		}
		return f, nil
	}
	f, err := export.FormatOf(o.file)
	if err != nil || o.file == "-" {
		return 0, output.UsageError("the format of %q is not known: name it with --format, one of %s", o.file, strings.Join(export.FormatNames(), ", "))
	}
	return f, nil
}

func (a *app) auditExport(ctx context.Context, opts auditExportOptions) error {
	format, err := opts.fileFormat()
	if err != nil {
		return err
	}
	if err := opts.checkManifest(format); err != nil {
		return err
	}
	req, err := opts.request(time.Now())
	if err != nil {
		return err
	}
	c, err := a.Dial()
	if err != nil {
		return err
	}
	defer c.Close()
	e := exporter{app: a, client: c, opts: opts}
	if err := e.look(ctx, req); err != nil {
		return err
	}
	files, err := a.newExportFiles(opts)
	if err != nil {
		return err
	}
	defer files.discard()
	if e.out, err = export.NewWriter(format, files.events); err != nil {
		return err
	}
	e.began = time.Now()
	if err := e.run(ctx); err != nil {
		return err
	}
	if err := e.out.Close(files.inside(e.summary.GetStatement())); err != nil {
		return err
	}
	if err := files.keep(e.summary.GetStatement()); err != nil {
		return err
	}
	return e.report(format)
}

// exporter writes one window to a file.
type exporter struct {
	app    *app
	client *client.Client
	opts   auditExportOptions
	out    export.Writer

	req     *runlogv1.ExportEventsRequest
	first   *runlogv1.QueryEventsResponse // the window as it was before the export
	began   time.Time
	record  export.Record
	tally   export.Tally
	summary *runlogv1.ExportSummary
	stated  *proof.Export // the statement of the summary
}

// look queries the window, so that an open or invalid one is refused before anything is written. It
// sets the end of the window.
func (e *exporter) look(ctx context.Context, req *runlogv1.QueryEventsRequest) error {
	req.PageSize = 1
	for page, err := range e.client.QueryEvents(ctx, req) {
		if err != nil {
			return err
		}
		e.first = page
		break
	}
	if err := e.app.tellUnseen(&e.opts.windowOptions, e.first); err != nil {
		return err
	}
	if !e.first.GetClosed() && !e.opts.allowOpen {
		return e.openError(e.first.GetTo().AsTime(), e.first.GetCompleteThrough().AsTime())
	}
	if req.GetTo() == nil {
		req.To = e.first.GetTo()
	}
	e.req = &runlogv1.ExportEventsRequest{
		From: req.GetFrom(), To: req.GetTo(), TenantId: req.GetTenantId(), ProjectId: req.GetProjectId(), EnvironmentId: req.GetEnvironmentId(),
		PlanId: req.GetPlanId(), RunId: req.GetRunId(), StepId: req.GetStepId(), Types: req.GetTypes(), PayloadForm: runlogv1.PayloadForm_JSON,
	}
	return nil
}

func (e *exporter) openError(to, through time.Time) error {
	return output.Errorf(output.ExitRefused, "the window is open: it ends at %s but is complete through %s only, and may get more events; "+
		"end it in the past with --to, wait, or export it as it is with --allow-open", to.Format(time.RFC3339Nano), through.Format(time.RFC3339Nano))
}

// run writes the events, and compares them with the statement of the cluster.
func (e *exporter) run(ctx context.Context) error {
	bar := e.app.windowProgress(e.first)
	defer bar.clear()
	for message, err := range e.client.ExportEvents(ctx, e.req) {
		if err != nil {
			return err
		}
		for _, m := range message.GetEvents() {
			if err := e.record.Take(m); err != nil {
				return err
			}
			e.tally.Add(&e.record)
			if err := e.out.Write(&e.record); err != nil {
				return err
			}
		}
		bar.reached(time.Now(), message.GetReadThrough(), e.tally.Count)
		e.summary = message.GetSummary()
	}
	return e.agree()
}

// agree compares the received events with the statement of the cluster. A file that would not
// verify is not kept.
func (e *exporter) agree() error {
	s := e.summary
	st, signers, err := proof.Peek(s.GetStatement())
	if err != nil {
		return fmt.Errorf("the cluster's statement on the export: %w", err)
	}
	stated, err := proof.ParseExport(st)
	if err != nil {
		return fmt.Errorf("the cluster's statement on the export: %w", err)
	}
	e.stated = stated
	switch {
	case stated.Count != e.tally.Count || stated.Digest != e.tally.Digest:
		return output.Errorf(output.ExitFailed, "received %s with the digest %s, but the cluster states %d with the digest %s; no file was kept; try again",
			output.Plural(e.tally.Count, "event"), e.tally.Digest, stated.Count, stated.Digest)
	case stated.To != e.req.GetTo().AsTime().UnixNano():
		return output.Errorf(output.ExitFailed, "the cluster exported a window up to %s, not up to %s", proof.FormatTime(stated.To), clock(e.req.GetTo()))
	case !stated.Closed() && !e.opts.allowOpen:
		return e.openError(time.Unix(0, stated.To).UTC(), time.Unix(0, stated.CompleteThrough).UTC())
	case len(signers) == 0 && !e.opts.unsigned:
		return output.Errorf(output.ExitRefused, "%s", "the export is not signed, and no file was kept: "+signingkey.Missing)
	}
	return nil
}

// exportReport is the JSON form of an export.
type exportReport struct {
	File      string   `json:"file"`
	Manifest  string   `json:"manifest,omitempty"` // its file, if it has one of its own
	Format    string   `json:"format"`
	From      string   `json:"from"`
	To        string   `json:"to"`
	Filter    []string `json:"filter"`
	Closed    bool     `json:"closed"`
	Count     uint64   `json:"count"`
	Digest    string   `json:"digest"`
	ClusterID string   `json:"clusterId"`
	Signers   []string `json:"signers"`
	Unseen    []unseen `json:"unseen,omitempty"`
	Seconds   float64  `json:"seconds"`
}

// unseen is the JSON form of a value of the filter that no event of the cluster has.
type unseen struct {
	Field      string `json:"field"`
	Value      string `json:"value"`
	DidYouMean string `json:"didYouMean,omitempty"`
	Uncertain  bool   `json:"uncertain,omitempty"`
}

func (e *exporter) unseen() (list []unseen) {
	for _, v := range e.first.GetUnseen() {
		list = append(list, unseen{v.GetField(), v.GetValue(), v.GetDidYouMean(), v.GetUncertain()})
	}
	return list
}

// report prints the result; on stderr if the events are on stdout.
func (e *exporter) report(format export.Format) error {
	_, signers, err := proof.Peek(e.summary.GetStatement())
	if err != nil {
		return err
	}
	took := time.Since(e.began)
	s, to := e.summary, e.app.Output
	if e.opts.file == "-" {
		to.Stdout = to.Stderr
	}
	report := exportReport{
		File: e.opts.file, Manifest: e.opts.sidecar(), Format: format.String(), From: clock(s.GetFrom()), To: clock(s.GetTo()),
		Filter: append([]string{}, filterOf(e.stated)...), Closed: s.GetClosed(), Count: s.GetCount(),
		Digest: s.GetDigest(), ClusterID: s.GetClusterId(), Signers: append([]string{}, signers...), Unseen: e.unseen(), Seconds: took.Seconds(),
	}
	state := "closed: it has these events forever"
	if !s.GetClosed() {
		state = "open: complete through " + clock(s.GetCompleteThrough()) + "; the window may get more events"
	}
	return to.Show(report,
		[2]string{"File", e.opts.file},
		[2]string{"Manifest", e.opts.sidecar()},
		[2]string{"Format", format.String()},
		[2]string{"Cluster", s.GetClusterId()},
		[2]string{"Window", span(s.GetFrom(), s.GetTo())},
		[2]string{"Filter", strings.Join(filterOf(e.stated), ", ")},
		[2]string{"State", state},
		[2]string{"Events", fmt.Sprintf("%s in %s (%s/s)", output.Number(s.GetCount()), output.Brief(took), output.Number(uint64(float64(s.GetCount())/max(took.Seconds(), 1e-3))))},
		[2]string{"Digest", s.GetDigest()},
		[2]string{"Signed by", signedBy(signers)},
	)
}

func signedBy(signers []string) string {
	if len(signers) == 0 {
		return "none: the node that answered does not have the cluster's key"
	}
	return strings.Join(signers, ", ")
}
