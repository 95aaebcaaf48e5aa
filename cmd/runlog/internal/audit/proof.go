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
	keys   []string
}

func (a *app) auditProofCommand() *cobra.Command {
	var opts proofOptions
	cmd := &cobra.Command{
		Use:   "proof RUN",
		Short: "Write a file that proves a run to the holder of a public key",
		Long: `Write a file with all records of a run and their path to a checkpoint that the cluster has signed. The holder of the
cluster's public key verifies it without a server, now or in ten years, with "runlog audit verify" or as docs/audit.md says.

The file proves the run as it is now; the cluster makes a checkpoint for it if there is none. An older public key of the
cluster verifies it, too: each key vouches for the next one.`,
		Example: `  runlog audit proof run-1 -f run-1.proof
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
	signingkey.Flag(cmd, &opts.keys)
	return cmd
}

// writeProof verifies the proof of a run and writes it. The file gets its name when it is complete.
func (a *app) writeProof(ctx context.Context, c *client.Client, runID string, opts proofOptions) error {
	resp, err := c.ProveRun(ctx, &runlogv1.ProveRunRequest{RunId: runID, Fresh: !opts.newest})
	if err != nil {
		return err
	}
	p, err := proof.RunProofOf(resp)
	if err != nil {
		return wrongAnswer(err)
	}
	trusted := opts.keys
	if len(trusted) == 0 {
		trusted = []string{p.Keys[0].PublicKey}
	}
	checkpoint, key, err := p.Verify(trusted...)
	if err != nil {
		return wrongAnswer(err)
	}
	to, err := a.newTarget(opts.file)
	if err != nil {
		return err
	}
	defer to.discard()
	out := bufio.NewWriter(to)
	if err := copyRun(ctx, c, out, p); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if err := to.keep(); err != nil || opts.file == "-" {
		return err
	}
	return a.reportProof(opts.file, &proof.RunReport{Leaf: p.Leaf, Checkpoint: *checkpoint, Key: key}, len(opts.keys) > 0)
}

// wrongAnswer is the error of an answer that proves nothing.
func wrongAnswer(err error) error {
	return output.Errorf(output.ExitFailed, "the server's answer proves nothing: %v; no file was written", err)
}

// copyRun writes the records of a leaf, and then its proof.
func copyRun(ctx context.Context, c *client.Client, out io.Writer, p *proof.RunProof) error {
	w, err := proof.NewRunWriter(out, p.Leaf.RunID)
	if err != nil {
		return err
	}
	if p.Leaf.LastSeq > 0 {
		for m, err := range c.ReadEvents(ctx, &runlogv1.ReadEventsRequest{RunId: p.Leaf.RunID}) {
			if err != nil {
				return err
			}
			r, err := proof.RecordOf(m)
			if err == nil {
				err = w.Add(&r)
			}
			if err != nil {
				return wrongAnswer(err)
			}
			if r.RunSeq >= p.Leaf.LastSeq {
				break
			}
		}
	}
	if err := w.End(p); errors.Is(err, proof.ErrRunFile) {
		return wrongAnswer(err)
	} else if err != nil {
		return err
	}
	return nil
}

// verifyProof verifies a file of writeProof.
func (a *app) verifyProof(path string, file io.Reader, keys []string) error {
	if len(keys) == 0 {
		return unverified(path + " is the proof of a run, which proves nothing without the cluster's public key")
	}
	report, err := proof.VerifyRunFile(file, keys...)
	if errors.Is(err, proof.ErrUnknownKey) {
		return output.WithHint(output.Errorf(output.ExitRefused, "%s: %v", path, err), signingkey.Hint(err))
	}
	if err != nil {
		return output.Errorf(output.ExitRefused, "%s: %v", path, err)
	}
	return a.reportProof(path, report, true)
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
	Runs            uint64 `json:"runs"`
	Root            string `json:"root"`
	// VerifiedKey is the given public key that the signature is of. If none was given it is empty,
	// and ServerKey is the key that the server names.
	VerifiedKey string `json:"verifiedKey"`
	ServerKey   string `json:"serverKey,omitempty"`
}

// reportProof prints what a proof proves. named is true if the user named the key, false if only
// the server did.
func (a *app) reportProof(path string, r *proof.RunReport, named bool) error {
	c, h := &r.Checkpoint, &r.Leaf
	verified, server, signature := r.Key, "", "verified, by "+r.Key
	if !named {
		verified, server = "", r.Key
		signature = "by the key " + r.Key + ", as this server says: compare it with a key that you got another way, or name that with --key"
	}
	report := proofReport{
		File: path, Format: "run proof", ClusterID: fmt.Sprintf("%x", c.Cluster), RunID: h.RunID, TenantID: h.TenantID, LastSeq: h.LastSeq,
		ChainDigest: h.Chain.String(), CompleteThrough: proof.FormatTime(c.CompleteThrough), Runs: c.Runs, Root: fmt.Sprintf("%x", c.Root[:]), VerifiedKey: verified, ServerKey: server,
	}
	return a.Show(report,
		[2]string{"File", path},
		[2]string{"Format", "proof of a run"},
		[2]string{"Cluster", fmt.Sprintf("%x", c.Cluster)},
		[2]string{"Run", h.RunID},
		[2]string{"Scope", output.Words(h.TenantID, h.ProjectID, h.EnvironmentID)},
		[2]string{"Records", fmt.Sprintf("all up to runSeq %d: none was changed, removed, added or moved", h.LastSeq)},
		[2]string{"Chain", h.Chain.String()},
		[2]string{"Checkpoint", fmt.Sprintf("of %s, over %s", proof.FormatTime(c.CompleteThrough), output.Plural(c.Runs, "run"))},
		[2]string{"Signature", signature},
	)
}
