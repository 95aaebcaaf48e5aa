package audit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"runlog/client/command/output"
	"runlog/client/command/session"
	"runlog/cmd/internal/signingkey"

	"github.com/spf13/cobra"

	"runlog/audit/proof"
	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
)

type proofOptions struct {
	file   string
	newest bool
	since  string
	keys   []string
}

func (a *app) auditProofCommand() *cobra.Command {
	var opts proofOptions
	cmd := &cobra.Command{
		Use:   "proof RUN",
		Short: "Write a file that proves a run to the holder of a public key",
		Long: `Write a file with all records of a run, the proof that each of them is in the log at a checkpoint that the cluster has signed,
and the proof that the run has no others there. The holder of the cluster's public key verifies it without a server, now or in
ten years, with "runlog audit verify" or as docs/audit.md says.

The file proves the run as it is now; the cluster makes a checkpoint for it if there is none. An older public key of the
cluster verifies it, too: each key vouches for the next one.

With --since, the file also proves that the log continues the checkpoint in a file that you have kept: that no record before it
was changed, removed or added since, by whoever held which key.`,
		Example: `  runlog audit proof run-1 -f run-1.proof
  runlog audit proof run-1 -f run-1.proof --since kept-in-may.txt
  runlog audit verify run-1.proof --key 'runlog/0191a3…+1b2c3d4e+AbCd…'`,
		Args:              session.OneRun,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithClient(func(c *client.Client) error { return a.writeProof(cmd.Context(), c, args[0], opts) })
		},
	}
	f := cmd.Flags()
	f.StringVarP(&opts.file, "file", "f", "-", "file to write, or - for standard output")
	f.BoolVar(&opts.newest, "newest", false, "prove the run as the newest checkpoint has it, without making another")
	f.StringVar(&opts.since, "since", "", "prove that the log continues the checkpoint in this file")
	signingkey.Flag(cmd, &opts.keys)
	return cmd
}

// writeProof verifies the proof of a run and writes it. The file gets its name when it is complete.
func (a *app) writeProof(ctx context.Context, c *client.Client, runID string, opts proofOptions) error {
	since, err := readKept(opts.since)
	if err != nil {
		return err
	}
	req := &runlogv1.ProveRunRequest{RunId: runID, Fresh: !opts.newest}
	if since != nil {
		req.SinceSize = since.checkpoint.Size
	}
	resp, err := c.ProveRun(ctx, req)
	if err != nil {
		return err
	}
	p, err := proof.RunProofOf(resp)
	if err != nil {
		return wrongAnswer(err)
	}
	if since != nil {
		p.Since = since.note
	}
	trusted := opts.keys
	if len(trusted) == 0 {
		trusted = []string{p.Keys[0].PublicKey}
	}
	verified, err := p.Verify(trusted...)
	if err != nil {
		return a.keptError(since, p.Checkpoint, err)
	}
	to, err := a.newTarget(opts.file)
	if err != nil {
		return err
	}
	defer to.discard()
	out := bufio.NewWriter(to)
	if err := copyRun(ctx, c, out, p, verified.Checkpoint); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if err := to.keep(); err != nil || opts.file == "-" {
		return err
	}
	report := &proof.RunReport{Head: p.Head, Checkpoint: *verified.Checkpoint, Key: verified.Key, Since: verified.Since}
	return a.reportProof(opts.file, report, "", len(opts.keys) > 0)
}

// wrongAnswer is the error of an answer that proves nothing.
func wrongAnswer(err error) error {
	return output.Errorf(output.ExitFailed, "the server's answer proves nothing: %v; no file was written", err)
}

// copyRun writes the proof of a run.
func copyRun(ctx context.Context, c *client.Client, out io.Writer, p *proof.RunProof, verified *proof.Checkpoint) error {
	err := p.VerifyHead(verified)
	if err == nil {
		err = proof.WriteRun(out, p, verified, c.ReadEvents(ctx, &runlogv1.ReadEventsRequest{RunId: p.Head.RunID}),
			func(afterSeq, treeSize uint64) (*runlogv1.ProveRecordsResponse, error) {
				return c.ProveRecords(ctx, &runlogv1.ProveRecordsRequest{RunId: p.Head.RunID, AfterSeq: afterSeq, TreeSize: treeSize})
			})
	}
	if errors.Is(err, proof.ErrRunFile) {
		return wrongAnswer(err)
	}
	return err
}

// verifyProof verifies a file of writeProof.
func (a *app) verifyProof(path string, file io.Reader, t *trust) error {
	if len(t.keys) == 0 {
		return unverified(path + " is the proof of a run, which proves nothing without the cluster's public key")
	}
	report, err := proof.VerifyRunFile(file, t.keys...)
	if err == nil && t.since != nil {
		err = t.since.named(report.Since)
	}
	if errors.Is(err, proof.ErrUnknownKey) {
		return output.WithHint(output.Errorf(output.ExitRefused, "%s: %v", path, err), signingkey.Hint(err))
	}
	if err != nil {
		return output.Errorf(output.ExitRefused, "%s: %v", path, err)
	}
	witnesses, err := t.witnessed(path, report.Note)
	if err != nil {
		return err
	}
	return a.reportProof(path, report, witnesses, true)
}

// proofReport is the JSON form of what a proof proves.
type proofReport struct {
	File        string `json:"file"`
	Format      string `json:"format"`
	ClusterID   string `json:"clusterId"`
	RunID       string `json:"runId"`
	TenantID    string `json:"tenantId"`
	LastSeq     uint64 `json:"lastSeq"`
	ChainDigest string `json:"chainDigest"`
	// CompleteThrough is the time up to which the checkpoint has every event.
	CompleteThrough string `json:"completeThrough"`
	Records         uint64 `json:"records"`
	Runs            uint64 `json:"runs"`
	Root            string `json:"root"`
	// Since is the kept checkpoint that the log continues.
	Since *keptReport `json:"since,omitempty"`
	// Witnesses says what the policy asks for, and which witnesses have signed.
	Witnesses string `json:"witnesses,omitempty"`
	// VerifiedKey is the given public key that the signature is of. If none was given it is empty,
	// and ServerKey is the key that the server names.
	VerifiedKey string `json:"verifiedKey"`
	ServerKey   string `json:"serverKey,omitempty"`
}

// reportProof prints what a proof proves, and what trust.witnessed says. named is true if the user
// named the key, false if only the server did.
func (a *app) reportProof(path string, r *proof.RunReport, witnesses string, named bool) error {
	c, h := &r.Checkpoint, &r.Head
	verified, server, signature := r.Key, "", "verified, by "+r.Key
	if !named {
		verified, server = "", r.Key
		signature = "by the key " + r.Key + ", as this server says: compare it with a key that you got another way, or name that with --key"
	}
	report := proofReport{
		File: path, Format: "run proof", ClusterID: fmt.Sprintf("%x", c.Cluster), RunID: h.RunID, TenantID: h.TenantID, LastSeq: h.LastSeq,
		ChainDigest: h.Chain.String(), CompleteThrough: proof.FormatTime(c.CompleteThrough), Records: c.Size, Runs: c.Runs,
		Root: fmt.Sprintf("%x", c.Root[:]), Since: reportKept(r.Since), Witnesses: witnesses, VerifiedKey: verified, ServerKey: server,
	}
	return a.Show(report,
		[2]string{"File", path},
		[2]string{"Format", "proof of a run"},
		[2]string{"Cluster", fmt.Sprintf("%x", c.Cluster)},
		[2]string{"Run", h.RunID},
		[2]string{"Scope", output.Words(h.TenantID, h.ProjectID, h.EnvironmentID)},
		[2]string{"Records", fmt.Sprintf("up to runSeq %d, each in the log at the checkpoint; by what the cluster signed, the run had no others", h.LastSeq)},
		[2]string{"Chain", h.Chain.String()},
		[2]string{"Checkpoint", fmt.Sprintf("of %s, over %s of %s", proof.FormatTime(c.CompleteThrough), output.Plural(c.Size, "record"), output.Plural(c.Runs, "run"))},
		[2]string{"Since", sinceText(r.Since)},
		[2]string{"Witnesses", witnesses},
		[2]string{"Signature", signature},
	)
}
