package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

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
		Short: "Write what proves a run to who has the cluster's public key",
		Long: `Write a file that has all records of a run, and what ties them to a checkpoint that the cluster has signed. Who has the
cluster's public key verifies it, now or in ten years, with "runlog audit verify" or by docs/audit.md, and asks no server.

The run is proved as it is now, by a checkpoint that is made for it if need be. A key of the cluster that is older than the
one that signs will do too: each key vouches for the next one.`,
		Example: `  runlog audit proof run-1 -f run-1.proof
  runlog audit verify run-1.proof --key 'runlog/0191a3…+1b2c3d4e+AbCd…'`,
		Args:              oneRun,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkKeys(opts.keys); err != nil {
				return err
			}
			return a.asking(func(c *client.Client) error { return a.writeProof(cmd.Context(), c, args[0], opts) })
		},
	}
	f := cmd.Flags()
	f.StringVarP(&opts.file, "file", "f", "-", "file to write, or - for standard output")
	f.BoolVar(&opts.newest, "newest", false, "prove the run as the newest checkpoint has it, which may be some time ago")
	f.StringArrayVar(&opts.keys, "key", nil, "public key of the cluster, name+id+key, that must have signed, or an older one; may be repeated")
	return cmd
}

// writeProof writes the proof of a run, once it has verified it. A file is there when it is whole.
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

// wrongAnswer says that a server did not answer what can be proved.
func wrongAnswer(err error) error {
	return &exitError{exitFailed, fmt.Sprintf("the server's answer proves nothing, and nothing was written: %v", err)}
}

// copyRun writes the records that a leaf stands for, and the proof behind them.
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

// verifyProof verifies a file that writeProof has written.
func (a *app) verifyProof(path string, file io.Reader, keys []string) error {
	if len(keys) == 0 {
		return usageError("%s is the proof of a run: name the cluster's public key with --key, or it proves nothing; \"runlog audit keys\" shows the keys, "+
			"and who is to be convinced must have got one in another way", path)
	}
	report, err := proof.VerifyRunFile(file, keys...)
	if errors.Is(err, proof.ErrUnknownKey) {
		return hinted{&exitError{exitRefused, fmt.Sprintf("%s: %v", path, err)}, signatureHint(err)}
	}
	if err != nil {
		return &exitError{exitRefused, fmt.Sprintf("%s: %v", path, err)}
	}
	return a.reportProof(path, report, true)
}

// proofReport is what a proof proves, as JSON shows it.
type proofReport struct {
	File        string `json:"file"`
	Format      string `json:"format"`
	ClusterID   string `json:"clusterId"`
	RunID       string `json:"runId"`
	TenantID    string `json:"tenantId"`
	LastSeq     uint64 `json:"lastSeq"`
	ChainDigest string `json:"chainDigest"`
	// CompleteThrough is the time up to which the checkpoint has all that was persisted.
	CompleteThrough string `json:"completeThrough"`
	Runs            uint64 `json:"runs"`
	Root            string `json:"root"`
	// VerifiedKey is the public key that has signed; empty where none was given, and ServerKey is
	// what the server says it is.
	VerifiedKey string `json:"verifiedKey"`
	ServerKey   string `json:"serverKey,omitempty"`
}

// reportProof tells what a proof proves to who trusts its key: one that was named, or one that only
// the server has named.
func (a *app) reportProof(path string, r *proof.RunReport, named bool) error {
	c, h := &r.Checkpoint, &r.Leaf
	verified, server, signature := r.Key, "", "verified, by "+r.Key
	if !named {
		verified, server = "", r.Key
		signature = "by the key " + r.Key + ", which this server names: compare it with one that you got another way, or give that with --key"
	}
	if a.format == formatJSON {
		return json.NewEncoder(a.stdout).Encode(proofReport{
			File: path, Format: "run proof", ClusterID: fmt.Sprintf("%x", c.Cluster), RunID: h.RunID, TenantID: h.TenantID, LastSeq: h.LastSeq,
			ChainDigest: h.Chain.String(), CompleteThrough: proof.FormatTime(c.CompleteThrough), Runs: c.Runs, Root: fmt.Sprintf("%x", c.Root[:]), VerifiedKey: verified, ServerKey: server,
		})
	}
	out := bufio.NewWriter(a.stdout)
	facts(out,
		[2]string{"File", path},
		[2]string{"Format", "proof of a run"},
		[2]string{"Cluster", fmt.Sprintf("%x", c.Cluster)},
		[2]string{"Run", h.RunID},
		[2]string{"Scope", words(h.TenantID, h.ProjectID, h.EnvironmentID)},
		[2]string{"Records", fmt.Sprintf("all up to runSeq %d: none was changed, left out, added or put in another place", h.LastSeq)},
		[2]string{"Chain", h.Chain.String()},
		[2]string{"Checkpoint", fmt.Sprintf("of %s, over %s", proof.FormatTime(c.CompleteThrough), plural(c.Runs, "run"))},
		[2]string{"Signature", signature},
	)
	return out.Flush()
}
