package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"runlog/client/command/output"
	"runlog/cmd/internal/signingkey"

	"github.com/spf13/cobra"

	"runlog/audit/export"
	"runlog/audit/proof"
)

func (a *app) auditVerifyCommand() *cobra.Command {
	var keys []string
	var since, policyFile string
	cmd := &cobra.Command{
		Use:   "verify FILE...",
		Short: "Verify exports, proofs and checkpoints without a server",
		Long: `Verify that a file has what the cluster exported: that no event was changed, removed, added or moved. The command needs
no server. With --key it also verifies the cluster's signature. Without, it prints the name that the signature claims, and
fails.

A file of "runlog audit proof", or one with checkpoints, needs a key. Checkpoints may be in several files, one or more in each,
as signed notes or as "runlog audit checkpoints" prints them. No two of them may contradict one another.

With --since, the file must prove that the log continues the checkpoint that you name: that no record before it was changed,
removed or added, by whoever held which key. Make such a file with the --since of "runlog audit proof" or "runlog audit
checkpoints". Without it, a holder of the signing key can have signed a changed history.

With --policy, the newest checkpoint must have the signatures of as many witnesses as the file asks for. The keys in its log
lines need not be named with --key.

The manifest of a JSON lines or CSV file may be in a file of its own (runlog audit export --manifest=sidecar). It is found if it
is in the same directory and has the same name with ".manifest" behind it; otherwise name both files.

The exit code is 0 if everything fits and one of the keys has signed it. It is 9 if no key was given: then the file is undamaged
at most, and anyone can have made it. It is 1 if something does not fit; stderr has a line for each fault.`,
		Example: "  runlog audit verify acme-2026-02.parquet --key 'runlog/0191a3…+1b2c3d4e+AbCd…'\n" +
			"  runlog audit verify acme-2026-02.csv --key cluster.pub\n" +
			"  runlog audit verify run-1.proof --since kept-in-may.txt --key cluster.pub",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("verify takes a file")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.auditVerify(cmd.Context(), args, since, policyFile, keys)
		},
	}
	cmd.Flags().StringVar(&policyFile, "policy", "", "require the witnesses that this file asks for, a policy of C2SP tlog-policy")
	cmd.Flags().StringVar(&since, "since", "", "require the proof that the log continues the checkpoint in this file")
	signingkey.Flag(cmd, &keys)
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
func (a *app) auditVerify(ctx context.Context, paths []string, sinceFile, policyFile string, keys []string) error {
	since, err := readKept(sinceFile)
	if err != nil {
		return err
	}
	asked, err := readPolicy(policyFile)
	if err != nil {
		return err
	}
	if asked != nil {
		keys = append(keys, asked.Keys()...)
	}
	trusts := &trust{keys: keys, since: since, policy: asked}
	var files, manifests []*evidence
	checkpoints := 0
	for _, path := range paths {
		e, err := openEvidence(path)
		if err != nil {
			return err
		}
		defer e.file.Close()
		if isManifest(e.head) {
			manifests = append(manifests, e)
			continue
		}
		if files = append(files, e); isCheckpoints(e.head) {
			checkpoints++
		}
	}
	switch {
	case len(files) == 0:
		return output.UsageError("%s is the manifest of an export; name the file that it belongs to, such as %s", paths[0], strings.TrimSuffix(paths[0], manifestSuffix))
	case checkpoints == len(paths):
		return a.verifyCheckpoints(files, trusts)
	case len(files) > 1 || len(manifests) > 1:
		return output.UsageError("verify takes one file, an export with its manifest, or several files that all have checkpoints")
	case proof.IsRunFile(files[0].head):
		return a.verifyProof(files[0].path, files[0].file, trusts)
	case since != nil || asked != nil:
		return output.UsageError("%s is an export, which has no checkpoint", files[0].path)
	case len(manifests) == 1:
		return a.verifyExport(ctx, files[0], manifests[0], keys)
	default:
		return a.verifyExport(ctx, files[0], nil, keys)
	}
}

// verifyExport verifies an export. manifest is the file of its manifest that the user has named;
// nil: none.
func (a *app) verifyExport(ctx context.Context, e, manifest *evidence, keys []string) error {
	began := time.Now()
	format, note, manifestPath, err := findManifest(e, manifest)
	if err != nil {
		return err
	}
	var report *export.Report
	if manifestPath == "" {
		report, err = export.Verify(ctx, format, e.file, e.size, keys...)
	} else {
		report, err = export.VerifyBeside(ctx, format, e.file, e.size, note, keys...)
	}
	if err != nil {
		return err
	}
	for _, fault := range report.Faults {
		fmt.Fprintln(a.Stderr, output.OneLine(fault))
	}
	if report.More > 0 {
		fmt.Fprintf(a.Stderr, "and %s more\n", output.Number(uint64(report.More)))
	}
	path := e.path
	switch {
	case len(report.Faults) > 0:
		return output.Errorf(output.ExitRefused, "%s is not what was exported: %s found", path, output.Plural(len(report.Faults)+report.More, "fault"))
	case report.Unsigned != nil:
		return output.WithHint(output.Errorf(output.ExitRefused, "%s: the events fit the manifest, but the manifest is not verified: %v", path, report.Unsigned), signingkey.Hint(report.Unsigned))
	}
	if err := a.reportVerified(path, manifestPath, format, report, time.Since(began)); err != nil || report.Manifest.Key != "" {
		return err
	}
	if len(report.Manifest.Signers) == 0 {
		return output.Errorf(output.ExitUnverified, "%s is undamaged, but not signed: anyone can have made it; ask the operator of the cluster for a signed export", path)
	}
	return unverified(path + " is undamaged, but no signature was verified, so that anyone can have made it")
}

// unverified is the error of a verification without a key.
func unverified(what string) error {
	return output.Errorf(output.ExitUnverified, "%s; name the key, or a file with it, with --key: \"runlog audit keys\" lists the keys, but get yours from a trusted person", what)
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
	// Manifest is the file that has the manifest, if it is not the export itself.
	Manifest string `json:"manifest,omitempty"`
	// VerifiedKey is the given public key that the signature is of; empty if none was given.
	VerifiedKey string `json:"verifiedKey"`
}

func (a *app) reportVerified(path, manifest string, format export.Format, r *export.Report, took time.Duration) error {
	m := &r.Manifest
	report := verifiedReport{
		File: path, Format: format.String(), ClusterID: fmt.Sprintf("%x", m.Cluster), From: proof.FormatTime(m.From), To: proof.FormatTime(m.To),
		Filter: append([]string{}, filterOf(&m.Export)...), Closed: m.Closed(), Count: r.Events, Links: r.Links, Digest: m.Digest.String(),
		Signers: append([]string{}, m.Signers...), Manifest: manifest, VerifiedKey: m.Key,
	}
	state := "closed: the cluster has these events forever"
	if !m.Closed() {
		state = "open when it was exported: complete through " + proof.FormatTime(m.CompleteThrough)
	}
	signature := "verified, by " + m.Key
	switch {
	case m.Key != "":
	case len(m.Signers) == 0:
		signature = "NONE"
	default:
		signature = "NOT VERIFIED; it claims to be by " + strings.Join(m.Signers, ", ")
	}
	return a.Show(report,
		[2]string{"File", path},
		[2]string{"Manifest", manifest},
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
