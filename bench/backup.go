package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"runlog/bench/load"
	"runlog/bench/report"
	"runlog/bench/target"
)

// BackupGoal is the required rate of a backup, divided by that of a copy of the same bytes on the
// same disk.
const BackupGoal = 0.6

// receiptBytes is the approximate size of an event in a filled store.
const receiptBytes = 110

// BackupOptions configure a measurement of backups.
type BackupOptions struct {
	// Binary is the program runlog.
	Binary string
	// Dir holds all files of the measurement; the caller owns it.
	Dir string
	// Bytes of the store that is backed up, about.
	Bytes int64
	// Rounds repeat everything. At least 1.
	Rounds int
	// Told, if not nil, is called with the current step.
	Told func(step string)
}

// BackupRound has the rates of one round, in bytes a second of all bytes of the backup.
type BackupRound struct {
	// Copy reads the node's files, writes them into one file and syncs it.
	Copy float64 `json:"copyBytesPerSecond"`
	// Full is a backup of everything; Same another one right after it; Restore makes a data
	// directory from it.
	Full    float64 `json:"fullBytesPerSecond"`
	Same    float64 `json:"sameBytesPerSecond"`
	Restore float64 `json:"restoreBytesPerSecond"`
}

// BackupReport has all rounds.
type BackupReport struct {
	Machine report.Machine   `json:"machine"`
	Bytes   int64            `json:"bytes"` // of a backup
	Files   int              `json:"files"`
	Rounds  []BackupRound    `json:"rounds"`
	Goals   []report.Verdict `json:"goals"`
}

// RunBackup fills a node's store, and then measures. Reads come from the disk, as far as the system
// drops its cache.
func RunBackup(ctx context.Context, o BackupOptions) (_ *BackupReport, err error) {
	fill := load.Fill{Receipts: int(o.Bytes / receiptBytes), RunEvents: 50}
	data := filepath.Join(o.Dir, "data")
	o.tell("filling")
	if err := fill.FillDataDir(ctx, o.Binary, data, nil); err != nil {
		return nil, err
	}
	n, err := target.StartNode(ctx, target.NodeOptions{Binary: o.Binary, Dir: o.Dir, Data: data})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	b := &backups{BackupOptions: o, node: n, report: &BackupReport{Machine: report.DescribeMachine(o.Dir)}}
	// Not measured: it makes the node flush, and shows the size.
	if _, err := b.backUp(ctx, "first"); err != nil {
		return nil, err
	}
	for i := range o.Rounds {
		round, err := b.round(ctx, strconv.Itoa(i))
		if err != nil {
			return nil, err
		}
		b.report.Rounds = append(b.report.Rounds, round)
	}
	b.report.judge()
	return b.report, nil
}

func (o *BackupOptions) tell(step string) {
	if o.Told != nil {
		o.Told(step)
	}
}

// judge holds the medians of the rounds to goals. Ratios are within a round.
func (r *BackupReport) judge() {
	for _, g := range []struct {
		measure string
		must    float64
		of      func(*BackupRound) float64
	}{
		{"full backup ÷ copy", BackupGoal, func(b *BackupRound) float64 { return b.Full / b.Copy }},
		{"backup without changes ÷ copy", 0, func(b *BackupRound) float64 { return b.Same / b.Copy }},
		{"restore ÷ copy", 0, func(b *BackupRound) float64 { return b.Restore / b.Copy }},
	} {
		var all []float64
		for i := range r.Rounds {
			all = append(all, g.of(&r.Rounds[i]))
		}
		goal, figure := report.Goal{Must: g.must}, report.Median(all)
		r.Goals = append(r.Goals, report.Verdict{Measure: g.measure, Figure: figure, Must: g.must, Verdict: goal.Judge(figure)})
	}
}

// Tables of the report.
func (r *BackupReport) Tables() []report.Table {
	rate := func(bytes float64) string { return report.Grouped(bytes/(1<<20)) + " MiB/s" }
	t := report.Table{Heads: []string{"ROUND", "COPY", "FULL BACKUP", "WITHOUT CHANGES", "RESTORE"}}
	for i := range r.Rounds {
		b := &r.Rounds[i]
		t.Rows = append(t.Rows, []string{strconv.Itoa(i + 1), rate(b.Copy), rate(b.Full), rate(b.Same), rate(b.Restore)})
	}
	goals := report.Report{Goals: r.Goals}
	return []report.Table{t, goals.GoalTable()}
}

type backups struct {
	BackupOptions
	node   *target.Node
	report *BackupReport
}

func (b *backups) round(ctx context.Context, name string) (r BackupRound, err error) {
	repo := filepath.Join(b.Dir, "repo-"+name)
	for _, step := range []struct {
		name string
		rate *float64
		f    func() (bytes, seconds float64, err error)
	}{
		{"copy", &r.Copy, func() (float64, float64, error) { return b.copy(ctx) }},
		{"full backup", &r.Full, func() (float64, float64, error) { return b.rate(b.backUp(ctx, repo)) }},
		{"backup without changes", &r.Same, func() (float64, float64, error) { return b.rate(b.backUp(ctx, repo)) }},
		{"restore", &r.Restore, func() (float64, float64, error) { return b.restore(ctx, repo) }},
	} {
		b.tell(step.name + ", round " + name)
		if err := b.forget(); err != nil {
			return r, err
		}
		bytes, seconds, err := step.f()
		if err != nil {
			return r, fmt.Errorf("bench: %s: %w", step.name, err)
		}
		*step.rate = bytes / max(seconds, 1e-6)
	}
	return r, os.RemoveAll(repo)
}

// forget drops the system's cache of files below the directory, also of those that a compaction
// removes in the meantime.
func (b *backups) forget() (failed error) {
	_ = filepath.WalkDir(b.Dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if f, err := os.Open(path); err == nil {
				failed = errors.Join(failed, evict(f), f.Close())
			}
		}
		return nil
	})
	return failed
}

// copy is the limit of the disk: the node's files, read and written once.
func (b *backups) copy(ctx context.Context) (copied, seconds float64, err error) {
	names, err := filepath.Glob(filepath.Join(b.node.Data, "store", "0*", "*.sst"))
	if err != nil {
		return 0, 0, err
	}
	path := filepath.Join(b.Dir, "copy")
	out, err := os.Create(path)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, os.Remove(path)) }()
	began, buf := time.Now(), make([]byte, writeBytes)
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return 0, 0, errors.Join(err, out.Close())
		}
		in, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, 0, errors.Join(err, out.Close())
		}
		// Not the system's own copying from file to file, which a backup over a network cannot
		// have.
		n, err := io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{in}, buf)
		if err = errors.Join(err, in.Close()); err != nil {
			return 0, 0, errors.Join(err, out.Close())
		}
		copied += float64(n)
	}
	err = errors.Join(datasync(out), out.Close())
	return copied, time.Since(began).Seconds(), err
}

// backupMade is the output of runlog backup -o json.
type backupMade struct {
	Files   int     `json:"files"`
	Bytes   int64   `json:"bytes,string"`
	Seconds float64 `json:"seconds"`
}

func (b *backups) backUp(ctx context.Context, repo string) (made backupMade, err error) {
	if !filepath.IsAbs(repo) {
		repo = filepath.Join(b.Dir, repo)
		defer func() { err = errors.Join(err, os.RemoveAll(repo)) }()
	}
	out, err := b.run(ctx, "backup", repo, "--server", b.node.Address, "-o", "json")
	if err == nil {
		err = json.Unmarshal(out, &made)
	}
	b.report.Files, b.report.Bytes = made.Files, made.Bytes
	return made, err
}

func (b *backups) rate(made backupMade, err error) (bytes, seconds float64, _ error) {
	return float64(made.Bytes), made.Seconds, err
}

func (b *backups) restore(ctx context.Context, repo string) (bytes, seconds float64, err error) {
	data := filepath.Join(b.Dir, "restored")
	defer func() { err = errors.Join(err, os.RemoveAll(data)) }()
	began := time.Now()
	_, err = b.run(ctx, "restore", repo, "--data-dir", data, "-o", "json")
	return float64(b.report.Bytes), time.Since(began).Seconds(), err
}

// run runs a command line to its end.
func (b *backups) run(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, b.Binary, args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("runlog %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return out, nil
}
