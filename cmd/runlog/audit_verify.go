package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"runlog/audit/export"
	"runlog/audit/proof"
)

func (a *app) auditVerifyCommand() *cobra.Command {
	var keys []string
	cmd := &cobra.Command{
		Use:   "verify FILE...",
		Short: "Verify files that were taken away, without a server",
		Long: `Verify that a file has what the cluster exported: that no event was changed, left out, added or put in another place. It
asks no server. With --key it verifies the cluster's signature too; without, it says who claims to have signed.

A file that "runlog audit proof" has written, or that has kept checkpoints, needs a key. Of checkpoints there may be several
files, with one or more each, as notes or as "runlog audit checkpoints -o json" prints them: each has to name the one before,
and then the newest vouches for all of them.

Exit code 0: all of it fits. 1: it does not, and stderr says where and why, a line each.`,
		Example: "  runlog audit verify acme-2026-02.parquet --key 'runlog/0191a3…+1b2c3d4e+AbCd…'\n" +
			"  runlog audit verify kept-in-may.txt checkpoints.jsonl --key \"$(cat cluster.pub)\"",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("verify takes a file")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.auditVerify(cmd.Context(), args, keys)
		},
	}
	keyFlag(cmd, &keys)
	return cmd
}

// evidence is a file that somebody has taken away.
type evidence struct {
	path string
	file *os.File
	size int64
	head []byte // its first bytes, which tell what it is
}

func openEvidence(path string) (*evidence, error) {
	file, err := os.Open(path)
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, usageError("%s: %v", path, pathError.Err)
	}
	if err != nil {
		return nil, err
	}
	e := &evidence{path: path, file: file, head: make([]byte, 512)}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = usageError("%s is no regular file", path)
	}
	if err == nil {
		var n int
		n, err = file.ReadAt(e.head, 0)
		e.size, e.head = info.Size(), e.head[:n]
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.Join(err, file.Close())
	}
	return e, nil
}

// auditVerify finds out by their first bytes what files are.
func (a *app) auditVerify(ctx context.Context, paths, keys []string) error {
	if err := checkKeys(keys); err != nil {
		return err
	}
	var files []*evidence
	checkpoints := 0
	for _, path := range paths {
		e, err := openEvidence(path)
		if err != nil {
			return err
		}
		defer e.file.Close()
		if files = append(files, e); isCheckpoints(e.head) {
			checkpoints++
		}
	}
	switch e := files[0]; {
	case checkpoints == len(files):
		return a.verifyCheckpoints(files, keys)
	case len(files) > 1:
		return usageError("verify takes one file, or some that have checkpoints, each of them")
	case proof.IsRunFile(e.head):
		return a.verifyProof(e.path, e.file, keys)
	default:
		return a.verifyExport(ctx, e, keys)
	}
}

func (a *app) verifyExport(ctx context.Context, e *evidence, keys []string) error {
	path, format := e.path, export.Detect(e.head)
	if format == 0 {
		return &exitError{exitRefused, path + " does not begin as a file that \"runlog audit\" writes"}
	}
	began := time.Now()
	report, err := export.Verify(ctx, format, e.file, e.size, keys...)
	if err != nil {
		return err
	}
	for _, fault := range report.Faults {
		fmt.Fprintln(a.stderr, oneLine(fault))
	}
	if report.More > 0 {
		fmt.Fprintf(a.stderr, "and %s more\n", number(uint64(report.More)))
	}
	switch {
	case len(report.Faults) > 0:
		return &exitError{exitRefused, fmt.Sprintf("%s is not what was exported: %s found", path, plural(len(report.Faults)+report.More, "fault"))}
	case report.Unsigned != nil:
		return hinted{&exitError{exitRefused, fmt.Sprintf("%s: the events fit the manifest, and the manifest is not verified: %v", path, report.Unsigned)}, signatureHint(report.Unsigned)}
	}
	return a.reportVerified(path, format, report, time.Since(began))
}

// verifiedReport is what a verification came to, as JSON shows it.
type verifiedReport struct {
	File      string   `json:"file"`
	Format    string   `json:"format"`
	ClusterID string   `json:"clusterId"`
	From      string   `json:"from"`
	To        string   `json:"to"`
	Filter    []string `json:"filter"`
	Closed    bool     `json:"closed"`
	Count     uint64   `json:"count"`
	Links     uint64   `json:"links"`
	Digest    string   `json:"digest"`
	Signers   []string `json:"signers"`
	// VerifiedKey is the public key that has signed; empty where none was given.
	VerifiedKey string `json:"verifiedKey"`
}

func (a *app) reportVerified(path string, format export.Format, r *export.Report, took time.Duration) error {
	m := &r.Manifest
	if a.format == formatJSON {
		return json.NewEncoder(a.stdout).Encode(verifiedReport{
			File: path, Format: format.String(), ClusterID: fmt.Sprintf("%x", m.Cluster), From: proof.FormatTime(m.From), To: proof.FormatTime(m.To),
			Filter: append([]string{}, filterOf(&m.Export)...), Closed: m.Closed(), Count: r.Events, Links: r.Links, Digest: m.Digest.String(),
			Signers: append([]string{}, m.Signers...), VerifiedKey: m.Key,
		})
	}
	state := "closed: the cluster has these events for ever"
	if !m.Closed() {
		state = "open when it was exported: complete through " + proof.FormatTime(m.CompleteThrough)
	}
	signature := "verified, by " + m.Key
	switch {
	case m.Key != "":
	case len(m.Signers) == 0:
		signature = "NONE: nobody has signed, so that anybody can have made the file"
	default:
		signature = "NOT VERIFIED: name the cluster's public key with --key; it claims to be by " + strings.Join(m.Signers, ", ")
	}
	out := bufio.NewWriter(a.stdout)
	facts(out,
		[2]string{"File", path},
		[2]string{"Format", format.String()},
		[2]string{"Cluster", fmt.Sprintf("%x", m.Cluster)},
		[2]string{"Window", "from " + proof.FormatTime(m.From) + " to before " + proof.FormatTime(m.To)},
		[2]string{"Filter", strings.Join(filterOf(&m.Export), ", ")},
		[2]string{"State", state},
		[2]string{"Events", fmt.Sprintf("%s in %s (%s/s); each fits its digests, and all of them the manifest's",
			number(r.Events), brief(took), number(uint64(float64(r.Events)/max(took.Seconds(), 1e-3))))},
		[2]string{"Chains", chains(r)},
		[2]string{"Digest", m.Digest.String()},
		[2]string{"Signature", signature},
	)
	return out.Flush()
}

// chains tells how many events were found to follow from the one before.
func chains(r *export.Report) string {
	text := fmt.Sprintf("%s begin their run, or follow from the event before", plural(r.Links, "event"))
	if others := r.Events - r.Links; others > 0 {
		text += fmt.Sprintf("; of %s the one before is not in the file", number(others))
	}
	return text
}

// filterOf tells what a window was narrowed to.
func filterOf(m *proof.Export) (filter []string) {
	for _, f := range [...][2]string{
		{"tenant", m.TenantID}, {"project", m.ProjectID}, {"environment", m.EnvironmentID},
		{"plan", m.PlanID}, {"run", m.RunID}, {"step", m.StepID},
	} {
		if f[1] != "" {
			filter = append(filter, f[0]+" "+f[1])
		}
	}
	for _, t := range m.Types {
		filter = append(filter, "type "+t)
	}
	return filter
}
