package backup

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"runlog/client/command/output"
	"runlog/client/command/session"
	"runlog/cmd/internal/signingkey"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"runlog/audit/proof"
	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage/backup"
)

// Flow control of the connection of a backup, in bytes. gRPC can find the window by itself, but
// takes as long for that as a small backup.
const (
	backupWindow = 8 << 20
	backupBuffer = 256 << 10
)

func (a *app) backupCommand() *cobra.Command {
	var full, unsigned bool
	cmd := &cobra.Command{
		Use:   "backup DIR",
		Short: "Back up a node; list, verify and prune backups",
		Long: `Back up the node of --server, while it works, into the directory DIR, which is created if it does not exist. A
backup is the whole state of the cluster at one moment. The node sends only the files that are new since its
last backup. It reads every other file and compares it with its earlier digest; the copy in the directory is
not read: "runlog backup verify --all" reads all copies.

An interrupted backup leaves no backup; the next one reuses the files that were complete. A backup that the
cluster has not signed is kept, and the exit code is 1. A directory is for one cluster. "runlog restore" makes
a node of a backup.`,
		Example: "  runlog backup /backups/main --server 10.0.0.2:7410\n  runlog backup list /backups/main\n" +
			"  runlog backup verify /backups/main\n  runlog backup prune /backups/main --keep 7",
		Args: session.OneArgument("the directory of the backups"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.DialOptions = append(a.DialOptions, grpc.WithInitialWindowSize(backupWindow), grpc.WithInitialConnWindowSize(2*backupWindow),
				grpc.WithReadBufferSize(backupBuffer))
			return a.WithClient(func(c *client.Client) error { return a.takeBackup(cmd.Context(), c, args[0], full, unsigned) })
		},
	}
	cmd.Flags().BoolVar(&full, "full", false, "send all files, also those that the directory has")
	cmd.Flags().BoolVar(&unsigned, "allow-unsigned", false, "exit with 0 even if the cluster lacks its key and has not signed the backup")
	cmd.AddCommand(a.backupListCommand(), a.backupVerifyCommand(), a.backupPruneCommand())
	return cmd
}

// backupLine is the JSON form of a backup.
type backupLine struct {
	Name            string   `json:"name"`
	ClusterID       string   `json:"clusterId,omitempty"`
	NodeID          string   `json:"nodeId,omitempty"`
	Origin          string   `json:"origin,omitempty"`
	Version         string   `json:"version,omitempty"`
	Made            string   `json:"made,omitempty"`
	CompleteThrough string   `json:"completeThrough,omitempty"`
	Position        uint64   `json:"position,omitempty,string"`
	Runs            uint64   `json:"runs,omitempty,string"`
	Events          uint64   `json:"events,omitempty,string"`
	Files           int      `json:"files,omitempty"`
	Bytes           uint64   `json:"bytes,omitempty,string"`
	Signers         []string `json:"signers,omitempty"`
	Error           string   `json:"error,omitempty"`
}

func lineOf(m *backup.Manifest) backupLine {
	return backupLine{
		Name: m.Name, ClusterID: fmt.Sprintf("%x", m.Cluster), NodeID: m.Node, Origin: m.Origin, Version: m.Version,
		Made: proof.FormatTime(m.Made), CompleteThrough: proof.FormatTime(m.CompleteThrough), Position: m.Position,
		Runs: m.Runs, Events: m.Events, Files: len(m.Files), Bytes: m.Bytes(), Signers: m.Signers,
	}
}

func (a *app) takeBackup(ctx context.Context, c *client.Client, dir string, full, unsigned bool) error {
	began := time.Now()
	destination, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	source := func(req *runlogv1.BackupRequest) iter.Seq2[*runlogv1.BackupResponse, error] {
		req.Destination = destination
		return c.Backup(ctx, req)
	}
	bar, advance := a.copying()
	taken, err := backup.Open(nil, dir).Take(source, backup.TakeOptions{Full: full, Progress: func(p backup.Progress) { advance("backing up", p) }})
	bar.Clear()
	if err != nil {
		return backupError(err)
	}
	if err := a.printTaken(taken, time.Since(began)); err != nil {
		return err
	}
	if len(taken.Signers) == 0 && !unsigned {
		return output.Errorf(output.ExitRefused, "the backup is complete and was kept, but is not signed, so a deliberate change would stay unnoticed: %s", signingkey.Missing)
	}
	return nil
}

func (a *app) printTaken(taken *backup.Taken, took time.Duration) error {
	rate := uint64(float64(taken.Bytes()) / max(took.Seconds(), 1e-3))
	if a.Format == output.JSON {
		return a.Object(struct {
			backupLine
			SentFiles  uint64  `json:"sentFiles"`
			SentBytes  uint64  `json:"sentBytes,string"`
			KnownFiles uint64  `json:"knownFiles"`
			KnownBytes uint64  `json:"knownBytes,string"`
			Seconds    float64 `json:"seconds"`
		}{lineOf(taken.Manifest), taken.SentFiles, taken.SentBytes, taken.KnownFiles, taken.KnownBytes, took.Seconds()})
	}
	_, err := fmt.Fprintf(a.Stdout, "%s\nof node %s, %s of %s up to entry %s, complete through %s; %s\n%s, %s in %v (%s/s): %s sent, %s were there\n",
		taken.Name, output.OneLine(taken.Node), output.Plural(taken.Events, "event"), output.Plural(taken.Runs, "run"), output.Number(taken.Position), proof.FormatTime(taken.CompleteThrough),
		signersOf(taken.Manifest), output.Plural(len(taken.Files), "file"), output.Size(taken.Bytes()), took.Round(time.Millisecond), output.Size(rate),
		output.Size(taken.SentBytes), output.Size(taken.KnownBytes))
	return err
}

func signersOf(m *backup.Manifest) string {
	if len(m.Signers) == 0 {
		return "not signed"
	}
	return "signed with " + output.OneLine(strings.Join(m.Signers, ", "))
}

// copying returns the progress of work on files, and a function that updates it. The progress is
// nil without a terminal.
func (a *app) copying() (*output.Progress, func(step string, p backup.Progress)) {
	if a.StderrWidth == 0 || a.Format == output.JSON {
		return nil, func(string, backup.Progress) {}
	}
	bar := a.NewProgress(0, time.Now())
	var told time.Time
	return bar, func(step string, p backup.Progress) {
		now := time.Now()
		if now.Sub(bar.Started()) < output.ProgressDelay || now.Sub(told) < output.ProgressEvery {
			return
		}
		told = now
		bar.Say(fmt.Sprintf("%s  %s of %s, file %s of %s", step, output.Size(p.Bytes), output.Size(p.TotalBytes), output.Number(p.Files), output.Number(p.TotalFiles)))
	}
}

// backupError gives an error of a repository its exit code and remedy. Damage has the exit code
// that it has in "audit verify".
func backupError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, backup.ErrNone), errors.Is(err, backup.ErrForeign):
		return output.Errorf(output.ExitUsage, "%s", err.Error())
	case errors.Is(err, backup.ErrBusy):
		return output.Errorf(output.ExitUnavailable, "%s", err.Error()+"; try again when it is done")
	case errors.Is(err, backup.ErrMissing), errors.Is(err, backup.ErrDamaged):
		// One line for each file.
		return output.WithHint(output.Errorf(output.ExitRefused, "%s", err.Error()), "use another backup, or repair this one: runlog backup --full sends all files again that the node still has")
	case errors.Is(err, backup.ErrManifest):
		return output.WithHint(output.Errorf(output.ExitRefused, "%s", err.Error()), "restore the file from a copy, or use another backup; to drop this backup, remove the file")
	case errors.Is(err, backup.ErrStream):
		return output.WithHint(err, "run the backup again: tables that were complete are not sent again")
	case errors.Is(err, proof.ErrUnsigned), errors.Is(err, proof.ErrUnknownKey), errors.Is(err, proof.ErrSignature):
		return output.WithHint(output.Errorf(output.ExitRefused, "%s", err.Error()), signingkey.Hint(err)+"; without --key only damage is detected")
	default:
		return err
	}
}

func (a *app) backupListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list DIR",
		Short: "List the backups of a directory, the newest state last",
		Args:  session.OneArgument("the directory of the backups"),
		RunE:  func(_ *cobra.Command, args []string) error { return a.listBackups(args[0]) },
	}
}

func (a *app) listBackups(dir string) error {
	entries, err := backupsIn(backup.Open(nil, dir), dir)
	if err != nil {
		return err
	}
	var faults []error
	each := func(yield func(backup.Entry, error) bool) {
		for _, e := range entries {
			faults = append(faults, e.Err)
			if !yield(e, nil) {
				return
			}
		}
	}
	err = output.List(&a.Output, each, 0,
		func(e backup.Entry) ([]byte, error) {
			if e.Err != nil {
				return json.Marshal(backupLine{Name: e.Name, Error: e.Err.Error()})
			}
			return json.Marshal(lineOf(e.Manifest))
		},
		func(e backup.Entry) []string {
			if e.Err != nil {
				return []string{e.Name, "", "", "", "", "", "DAMAGED"}
			}
			return []string{e.Name, e.Node, output.Number(e.Position), output.Number(e.Events), strconv.Itoa(len(e.Files)), output.Size(e.Bytes()), signersOf(e.Manifest)}
		},
		"NAME", "NODE", "ENTRY", "EVENTS", "FILES", "SIZE", "SIGNATURE")
	return backupError(errors.Join(append(faults, err)...))
}

func (a *app) backupVerifyCommand() *cobra.Command {
	var keys []string
	var all bool
	cmd := &cobra.Command{
		Use:   "verify DIR [NAME]",
		Short: "Compare the files of a backup, or of all, with its manifest",
		Long: `Read all files of a backup and compare them with its manifest. NAME is its name or a prefix of it; the default is
the backup with the newest state. With --all, verify every backup of the directory and read each file once.
With --key, a manifest must be signed with that key. Without, only damage is found, not a deliberate change of
a file together with the manifest.`,
		Example: "  runlog backup verify /backups/main\n  runlog backup verify /backups/main --all\n" +
			"  runlog backup verify /backups/main 20260212T0600 --key cluster.pub",
		Args: session.Arguments(1, 2, "the directory of the backups and at most one name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case all && len(args) > 1:
				return output.UsageError("verify takes either the name of a backup or --all")
			case all:
				return a.verifyBackups(cmd.Context(), args[0], keys)
			default:
				return a.verifyBackup(cmd.Context(), args[0], append(args, "")[1], keys)
			}
		},
	}
	signingkey.Flag(cmd, &keys)
	cmd.Flags().BoolVar(&all, "all", false, "verify every backup of the directory")
	return cmd
}

func (a *app) verifyBackup(ctx context.Context, dir, name string, keys []string) error {
	repo := backup.Open(nil, dir)
	m, err := repo.Find(name)
	if err != nil {
		return backupError(err)
	}
	key, err := backupSigner(m, keys)
	if err != nil {
		return backupError(fmt.Errorf("%s: %w", m.Name, err))
	}
	bar, advance := a.copying()
	err = repo.Verify(ctx, m, func(p backup.Progress) { advance("verifying", p) })
	bar.Clear()
	if err != nil {
		return backupError(fmt.Errorf("%s: %w", m.Name, err))
	}
	return a.tellVerified(m, key)
}

// backupSigner returns which of the keys has signed a backup; empty if no key was given.
func backupSigner(m *backup.Manifest, keys []string) (string, error) {
	if len(keys) == 0 {
		return "", nil
	}
	return m.Signed(keys...)
}

func (a *app) tellVerified(m *backup.Manifest, key string) error {
	return a.Tell(fmt.Sprintf("%s: %s, %s, verified; %s", m.Name, output.Plural(len(m.Files), "file"), output.Size(m.Bytes()), signature(m, key)),
		struct {
			backupLine
			Key string `json:"key,omitempty"`
		}{lineOf(m), key})
}

// verifyBackups verifies all backups of a directory, and prints a line for each.
func (a *app) verifyBackups(ctx context.Context, dir string, keys []string) error {
	repo := backup.Open(nil, dir)
	entries, err := backupsIn(repo, dir)
	if err != nil {
		return err
	}
	var whole []*backup.Manifest // of the backups whose manifest can be read
	for _, e := range entries {
		if e.Err == nil {
			whole = append(whole, e.Manifest)
		}
	}
	bar, advance := a.copying()
	errs := repo.VerifyAll(ctx, whole, func(p backup.Progress) { advance("verifying", p) })
	bar.Clear()
	if err := ctx.Err(); err != nil {
		return err
	}
	bad := 0
	for _, e := range entries {
		key, what, err := "", "DAMAGED", e.Err
		if err == nil {
			err, errs = errs[0], errs[1:]
		}
		if err == nil {
			key, err = backupSigner(e.Manifest, keys)
			what = "NOT SIGNED WITH --key"
		}
		if err == nil {
			err = a.tellVerified(e.Manifest, key)
		} else {
			bad++
			err = a.Tell(fmt.Sprintf("%s: %s: %s", e.Name, what, strings.ReplaceAll(err.Error(), "\n", "; ")), backupLine{Name: e.Name, Error: err.Error()})
		}
		if err != nil {
			return err
		}
	}
	if bad > 0 {
		return output.WithHint(output.Errorf(output.ExitRefused, "of %s %d cannot be trusted, see above", output.Plural(len(entries), "backup"), bad),
			"runlog backup --full sends all files again that the node still has; to drop a backup, remove its manifest")
	}
	return nil
}

// backupsIn lists the backups of a directory. A directory without backups is an error.
func backupsIn(repo *backup.Repository, dir string) ([]backup.Entry, error) {
	entries, err := repo.List()
	if err == nil && len(entries) == 0 {
		err = output.UsageError("%s has no backups", dir)
	}
	return entries, err
}

// signature describes the signature of a backup. key is the verified key; empty if none was given.
func signature(m *backup.Manifest, key string) string {
	switch {
	case key != "":
		return "signed with " + key
	case len(m.Signers) == 0:
		return "not signed"
	default:
		return signersOf(m) + ", which was not checked (--key)"
	}
}

func (a *app) backupPruneCommand() *cobra.Command {
	var keep int
	cmd := &cobra.Command{
		Use:   "prune DIR --keep N",
		Short: "Remove all but the newest backups, and files without a backup",
		Long: `Remove all backups but the N with the newest states, and the files that no backup has any more. If there is a
backup to remove, all files of the others are verified first. If one is damaged, nothing is removed: a backup
that would be removed may have it intact. No backup can be made into the directory at the same time.`,
		Example: "  runlog backup prune /backups/main --keep 7",
		Args:    session.OneArgument("the directory of the backups"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if keep < 1 {
				return output.UsageError("--keep is missing or less than 1; give the number of backups to keep")
			}
			return a.pruneBackups(cmd.Context(), args[0], keep)
		},
	}
	cmd.Flags().IntVar(&keep, "keep", 0, "number of backups to keep")
	return cmd
}

func (a *app) pruneBackups(ctx context.Context, dir string, keep int) error {
	repo := backup.Open(nil, dir)
	if _, err := backupsIn(repo, dir); err != nil {
		return err // A mistyped directory is not created.
	}
	bar, advance := a.copying()
	p, err := repo.Prune(ctx, keep, func(p backup.Progress) { advance("verifying", p) })
	bar.Clear()
	if err != nil {
		return backupError(err)
	}
	if a.Format == output.JSON {
		return a.Object(struct {
			Removed []string `json:"removed"`
			Kept    int      `json:"kept"`
			Files   uint64   `json:"files"`
			Bytes   uint64   `json:"bytes,string"`
		}{append([]string{}, p.Backups...), p.Kept, p.Files, p.Bytes})
	}
	out := bufio.NewWriter(a.Stdout)
	for _, name := range p.Backups {
		fmt.Fprintf(out, "removed %s\n", name)
	}
	fmt.Fprintf(out, "%s removed, with %s of %s; %d kept\n", output.Plural(len(p.Backups), "backup"), output.Plural(p.Files, "file"), output.Size(p.Bytes), p.Kept)
	return out.Flush()
}
