package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"runlog/audit/proof"
	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage/backup"
)

// Flow control of the connection that a backup comes over, in bytes: gRPC finds out by itself how
// much there may be on the way, and takes as long for that as a small backup needs.
const (
	backupWindow = 8 << 20
	backupBuffer = 256 << 10
)

func (a *app) backupCommand() *cobra.Command {
	var full, unsigned bool
	cmd := &cobra.Command{
		Use:   "backup DIR",
		Short: "Back up a node into a directory, and look after backups",
		Long: `Make a backup of the node that --server names, while it works, in the directory DIR, which is made where
there is none. A backup is a whole state of the cluster at one moment; what is new since the last one of
the same node is sent. Every file that is there already is read by the node, and compared with what its
digest was: the copy in the directory is not read. "runlog backup verify --all" reads all copies.

A backup that is cut leaves no backup, and the next one goes on with the files that have come whole. One that
the cluster has not signed is kept, and the exit code is 1. One directory is for one cluster. "runlog restore" makes a node of a backup.`,
		Example: "  runlog backup /backups/main --server 10.0.0.2:7410\n  runlog backup list /backups/main\n" +
			"  runlog backup verify /backups/main\n  runlog backup prune /backups/main --keep 7",
		Args: oneArgument("the directory of the backups"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.dialOptions = append(a.dialOptions, grpc.WithInitialWindowSize(backupWindow), grpc.WithInitialConnWindowSize(2*backupWindow),
				grpc.WithReadBufferSize(backupBuffer))
			return a.asking(func(c *client.Client) error { return a.takeBackup(cmd.Context(), c, args[0], full, unsigned) })
		},
	}
	cmd.Flags().BoolVar(&full, "full", false, "have all files sent, also those that are there")
	cmd.Flags().BoolVar(&unsigned, "allow-unsigned", false, "exit with 0 also where the cluster lacks its key and has not signed the backup")
	cmd.AddCommand(a.backupListCommand(), a.backupVerifyCommand(), a.backupPruneCommand())
	return cmd
}

// backupLine is a backup as JSON shows it.
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
	source := func(req *runlogv1.BackupRequest) iter.Seq2[*runlogv1.BackupResponse, error] {
		return c.Backup(ctx, req)
	}
	bar, advance := a.copying()
	taken, err := backup.Open(nil, dir).Take(source, backup.TakeOptions{Full: full, Progress: func(p backup.Progress) { advance("backing up", p) }})
	bar.clear()
	if err != nil {
		return backupError(err)
	}
	if err := a.printTaken(taken, time.Since(began)); err != nil {
		return err
	}
	if len(taken.Signers) == 0 && !unsigned {
		return &exitError{exitRefused, "the backup is whole and was kept, and it is not signed, so that nobody can tell whether it was changed on purpose: " + keyMissing}
	}
	return nil
}

func (a *app) printTaken(taken *backup.Taken, took time.Duration) error {
	rate := uint64(float64(taken.Bytes()) / max(took.Seconds(), 1e-3))
	if a.format == formatJSON {
		return json.NewEncoder(a.stdout).Encode(struct {
			backupLine
			SentFiles  uint64  `json:"sentFiles"`
			SentBytes  uint64  `json:"sentBytes,string"`
			KnownFiles uint64  `json:"knownFiles"`
			KnownBytes uint64  `json:"knownBytes,string"`
			Seconds    float64 `json:"seconds"`
		}{lineOf(taken.Manifest), taken.SentFiles, taken.SentBytes, taken.KnownFiles, taken.KnownBytes, took.Seconds()})
	}
	_, err := fmt.Fprintf(a.stdout, "%s\nof node %s, %s of %s up to entry %s, complete through %s; %s\n%s, %s in %v (%s/s): %s sent, %s were there\n",
		taken.Name, oneLine(taken.Node), plural(taken.Events, "event"), plural(taken.Runs, "run"), number(taken.Position), proof.FormatTime(taken.CompleteThrough),
		signersOf(taken.Manifest), plural(len(taken.Files), "file"), sizeText(taken.Bytes()), took.Round(time.Millisecond), sizeText(rate),
		sizeText(taken.SentBytes), sizeText(taken.KnownBytes))
	return err
}

func signersOf(m *backup.Manifest) string {
	if len(m.Signers) == 0 {
		return "not signed"
	}
	return "signed with " + oneLine(strings.Join(m.Signers, ", "))
}

// copying returns a line on the terminal that tells how far a work with files is; nil: there is no
// terminal.
func (a *app) copying() (*progress, func(step string, p backup.Progress)) {
	if a.stderrWidth == 0 || a.format == formatJSON {
		return nil, func(string, backup.Progress) {}
	}
	bar := &progress{w: a.stderr, width: a.stderrWidth, started: time.Now()}
	var told time.Time
	return bar, func(step string, p backup.Progress) {
		now := time.Now()
		if now.Sub(bar.started) < progressDelay || now.Sub(told) < progressEvery {
			return
		}
		told = now
		bar.say(fmt.Sprintf("%s  %s of %s, file %s of %s", step, sizeText(p.Bytes), sizeText(p.TotalBytes), number(p.Files), number(p.TotalFiles)))
	}
}

// backupError gives an error of a repository its exit code: damage is told as "audit verify" tells
// it.
func backupError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, backup.ErrNone), errors.Is(err, backup.ErrForeign):
		return &exitError{exitUsage, err.Error()}
	case errors.Is(err, backup.ErrBusy):
		return &exitError{exitUnavailable, err.Error() + "; try again when it is done"}
	case errors.Is(err, backup.ErrMissing), errors.Is(err, backup.ErrDamaged):
		// One line for each file.
		return hinted{&exitError{exitRefused, err.Error()}, "another backup may be whole, and runlog backup --full has everything sent anew that the node still has"}
	case errors.Is(err, backup.ErrManifest):
		return hinted{&exitError{exitRefused, err.Error()}, "restore the file from elsewhere, or name or make another backup; to give this one up, remove the file"}
	case errors.Is(err, backup.ErrStream):
		return hinted{err, "make the backup again: tables that have come whole are not sent again"}
	case errors.Is(err, proof.ErrUnsigned), errors.Is(err, proof.ErrUnknownKey), errors.Is(err, proof.ErrSignature):
		return hinted{&exitError{exitRefused, err.Error()}, signatureHint(err) + "; without --key only damage is looked for"}
	default:
		return err
	}
}

func (a *app) backupListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list DIR",
		Short: "List the backups of a directory, the one that reaches furthest last",
		Args:  oneArgument("the directory of the backups"),
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
	err = list(a, each, 0,
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
			return []string{e.Name, e.Node, number(e.Position), number(e.Events), strconv.Itoa(len(e.Files)), sizeText(e.Bytes()), signersOf(e.Manifest)}
		},
		"NAME", "NODE", "ENTRY", "EVENTS", "FILES", "SIZE", "SIGNATURE")
	return backupError(errors.Join(append(faults, err)...))
}

func (a *app) backupVerifyCommand() *cobra.Command {
	var keys []string
	var all bool
	cmd := &cobra.Command{
		Use:   "verify DIR [NAME]",
		Short: "Read a backup, or all of them, and compare every file with its manifest",
		Long: `Read all files of a backup and compare them with its manifest: NAME, or how it begins, or the one that reaches
furthest; with --all every backup of the directory, each file once. With --key a manifest must be signed
with that key; without, only damage is found, and not somebody who has changed a file and the manifest.`,
		Example: "  runlog backup verify /backups/main\n  runlog backup verify /backups/main --all\n" +
			"  runlog backup verify /backups/main 20260212T0600 --key \"$(cat cluster.pub)\"",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return fmt.Errorf("verify takes the directory of the backups, and the name of one or none, not %s", plural(len(args), "argument"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case all && len(args) > 1:
				return usageError("verify takes the name of a backup, or --all")
			case all:
				return a.verifyBackups(cmd.Context(), args[0], keys)
			default:
				return a.verifyBackup(cmd.Context(), args[0], append(args, "")[1], keys)
			}
		},
	}
	keyFlag(cmd, &keys)
	cmd.Flags().BoolVar(&all, "all", false, "verify every backup of the directory")
	return cmd
}

func (a *app) verifyBackup(ctx context.Context, dir, name string, keys []string) error {
	if err := checkKeys(keys); err != nil {
		return err
	}
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
	bar.clear()
	if err != nil {
		return backupError(fmt.Errorf("%s: %w", m.Name, err))
	}
	return a.tellVerified(m, key)
}

// backupSigner returns which of the keys has signed a backup; empty: none was asked for.
func backupSigner(m *backup.Manifest, keys []string) (string, error) {
	if len(keys) == 0 {
		return "", nil
	}
	return m.Signed(keys...)
}

func (a *app) tellVerified(m *backup.Manifest, key string) error {
	return a.tell(fmt.Sprintf("%s: %s, %s, are what was backed up; %s", m.Name, plural(len(m.Files), "file"), sizeText(m.Bytes()), signature(m, key)),
		struct {
			backupLine
			Key string `json:"key,omitempty"`
		}{lineOf(m), key})
}

// verifyBackups verifies all of a directory, and tells of each.
func (a *app) verifyBackups(ctx context.Context, dir string, keys []string) error {
	if err := checkKeys(keys); err != nil {
		return err
	}
	repo := backup.Open(nil, dir)
	entries, err := backupsIn(repo, dir)
	if err != nil {
		return err
	}
	var whole []*backup.Manifest // as far as their manifests tell
	for _, e := range entries {
		if e.Err == nil {
			whole = append(whole, e.Manifest)
		}
	}
	bar, advance := a.copying()
	errs := repo.VerifyAll(ctx, whole, func(p backup.Progress) { advance("verifying", p) })
	bar.clear()
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
			err = a.tell(fmt.Sprintf("%s: %s: %s", e.Name, what, strings.ReplaceAll(err.Error(), "\n", "; ")), backupLine{Name: e.Name, Error: err.Error()})
		}
		if err != nil {
			return err
		}
	}
	if bad > 0 {
		return hinted{&exitError{exitRefused, fmt.Sprintf("of %s %d cannot be trusted, see above", plural(len(entries), "backup"), bad)},
			"runlog backup --full has everything sent anew that the node still has; to give one up, remove its manifest"}
	}
	return nil
}

// backupsIn lists the backups of a directory, of which there is one at least.
func backupsIn(repo *backup.Repository, dir string) ([]backup.Entry, error) {
	entries, err := repo.List()
	if err == nil && len(entries) == 0 {
		err = usageError("%s has no backups", dir)
	}
	return entries, err
}

// signature tells what is known of a signature. key is the one that was verified.
func signature(m *backup.Manifest, key string) string {
	switch {
	case key != "":
		return "the signature is that of " + key
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
		Short: "Remove all backups but the newest, and the files that no backup has any more",
		Long: `Remove all backups but the N that reach furthest, and the files that no backup has any more. Where one goes,
all files of those that stay are read before, and nothing is removed if one of them is damaged: one that
would go may be whole. Meanwhile no backup can be made into the directory.`,
		Example: "  runlog backup prune /backups/main --keep 7",
		Args:    oneArgument("the directory of the backups"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if keep < 1 {
				return usageError("--keep names how many backups stay, 1 at least")
			}
			return a.pruneBackups(cmd.Context(), args[0], keep)
		},
	}
	cmd.Flags().IntVar(&keep, "keep", 0, "how many backups stay")
	return cmd
}

func (a *app) pruneBackups(ctx context.Context, dir string, keep int) error {
	repo := backup.Open(nil, dir)
	if _, err := backupsIn(repo, dir); err != nil {
		return err // a mistyped directory is not made
	}
	bar, advance := a.copying()
	p, err := repo.Prune(ctx, keep, func(p backup.Progress) { advance("verifying", p) })
	bar.clear()
	if err != nil {
		return backupError(err)
	}
	if a.format == formatJSON {
		return json.NewEncoder(a.stdout).Encode(struct {
			Removed []string `json:"removed"`
			Kept    int      `json:"kept"`
			Files   uint64   `json:"files"`
			Bytes   uint64   `json:"bytes,string"`
		}{append([]string{}, p.Backups...), p.Kept, p.Files, p.Bytes})
	}
	out := bufio.NewWriter(a.stdout)
	for _, name := range p.Backups {
		fmt.Fprintf(out, "removed %s\n", name)
	}
	fmt.Fprintf(out, "%s removed, with %s of %s; %d kept\n", plural(len(p.Backups), "backup"), plural(p.Files, "file"), sizeText(p.Bytes), p.Kept)
	return out.Flush()
}
