package audit

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

	"runlog/cmd/runlog/internal/output"
	"runlog/cmd/runlog/internal/session"

	"github.com/spf13/cobra"

	"runlog/audit/export"
	"runlog/audit/proof"
)

func (a *app) auditVerifyCommand() *cobra.Command {
	var keys []string
	cmd := &cobra.Command{
		Use:   "verify FILE...",
		Short: "Verify exports, proofs and checkpoints without a server",
		Long: `Verify that a file has what the cluster exported: that no event was changed, removed, added or moved. The command needs
no server. With --key it also verifies the cluster's signature. Without, it prints the name that the signature claims.

A file of "runlog audit proof", or one with checkpoints, needs a key. Checkpoints may be in several files, one or more in each,
as signed notes or as "runlog audit checkpoints -o json" prints them. Each has to name the one before; then the newest
vouches for all of them.

The exit code is 0 if everything fits. It is 1 if something does not; stderr has a line for each fault.`,
		Example: "  runlog audit verify acme-2026-02.parquet --key 'runlog/0191a3…+1b2c3d4e+AbCd…'\n" +
			"  runlog audit verify kept-in-may.txt checkpoints.jsonl --key cluster.pub",
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
	session.KeyFlag(cmd, &keys)
	return cmd
}

// evidence is a file to verify.
type evidence struct {
	path string
	file *os.File
	size int64
	head []byte // its first bytes, which identify its format
}

func openEvidence(path string) (*evidence, error) {
	file, err := os.Open(path)
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, output.UsageError("%s: %v", path, pathError.Err)
	}
	if err != nil {
		return nil, err
	}
	e := &evidence{path: path, file: file, head: make([]byte, 512)}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = output.UsageError("%s is not a regular file", path)
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

// auditVerify identifies files by their first bytes, and verifies them.
func (a *app) auditVerify(ctx context.Context, paths, keys []string) error {
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
		return output.UsageError("verify takes one file, or several that all have checkpoints")
	case proof.IsRunFile(e.head):
		return a.verifyProof(e.path, e.file, keys)
	default:
		return a.verifyExport(ctx, e, keys)
	}
}

func (a *app) verifyExport(ctx context.Context, e *evidence, keys []string) error {
	path, format := e.path, export.Detect(e.head)
	if format == 0 {
		return output.Errorf(output.ExitRefused, "%s", path+" does not begin as a file of \"runlog audit\"")
	}
	began := time.Now()
	report, err := export.Verify(ctx, format, e.file, e.size, keys...)
	if err != nil {
		return err
	}
	for _, fault := range report.Faults {
		fmt.Fprintln(a.Stderr, output.OneLine(fault))
	}
	if report.More > 0 {
		fmt.Fprintf(a.Stderr, "and %s more\n", output.Number(uint64(report.More)))
	}
	switch {
	case len(report.Faults) > 0:
		return output.Errorf(output.ExitRefused, "%s is not what was exported: %s found", path, output.Plural(len(report.Faults)+report.More, "fault"))
	case report.Unsigned != nil:
		return output.WithHint(output.Errorf(output.ExitRefused, "%s: the events fit the manifest, but the manifest is not verified: %v", path, report.Unsigned), session.SignatureHint(report.Unsigned))
	}
	return a.reportVerified(path, format, report, time.Since(began))
}

// verifiedReport is the JSON form of a verified export.
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
	// VerifiedKey is the given public key that the signature is of; empty if none was given.
	VerifiedKey string `json:"verifiedKey"`
}

func (a *app) reportVerified(path string, format export.Format, r *export.Report, took time.Duration) error {
	m := &r.Manifest
	if a.Format == output.JSON {
		return json.NewEncoder(a.Stdout).Encode(verifiedReport{
			File: path, Format: format.String(), ClusterID: fmt.Sprintf("%x", m.Cluster), From: proof.FormatTime(m.From), To: proof.FormatTime(m.To),
			Filter: append([]string{}, filterOf(&m.Export)...), Closed: m.Closed(), Count: r.Events, Links: r.Links, Digest: m.Digest.String(),
			Signers: append([]string{}, m.Signers...), VerifiedKey: m.Key,
		})
	}
	state := "closed: the cluster has these events forever"
	if !m.Closed() {
		state = "open when it was exported: complete through " + proof.FormatTime(m.CompleteThrough)
	}
	signature := "verified, by " + m.Key
	switch {
	case m.Key != "":
	case len(m.Signers) == 0:
		signature = "NONE: anyone can have made the file"
	default:
		signature = "NOT VERIFIED: name the cluster's public key with --key; the signature claims to be by " + strings.Join(m.Signers, ", ")
	}
	out := bufio.NewWriter(a.Stdout)
	output.Facts(out,
		[2]string{"File", path},
		[2]string{"Format", format.String()},
		[2]string{"Cluster", fmt.Sprintf("%x", m.Cluster)},
		[2]string{"Window", "from " + proof.FormatTime(m.From) + " to before " + proof.FormatTime(m.To)},
		[2]string{"Filter", strings.Join(filterOf(&m.Export), ", ")},
		[2]string{"State", state},
		[2]string{"Events", fmt.Sprintf("%s in %s (%s/s); each fits its digests, and all fit the manifest",
			output.Number(r.Events), output.Brief(took), output.Number(uint64(float64(r.Events)/max(took.Seconds(), 1e-3))))},
		[2]string{"Chains", chains(r)},
		[2]string{"Digest", m.Digest.String()},
		[2]string{"Signature", signature},
	)
	return out.Flush()
}

// chains describes how many events were verified to follow the one before.
func chains(r *export.Report) string {
	text := fmt.Sprintf("%s begin their run, or follow the event before", output.Plural(r.Links, "event"))
	if others := r.Events - r.Links; others > 0 {
		text += fmt.Sprintf("; the event before %s is not in the file", output.Number(others))
	}
	return text
}

// filterOf returns the filter of a window, a text for each field.
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
