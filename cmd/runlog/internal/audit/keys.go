package audit

import (
	"context"
	"iter"
	"strconv"

	"runlog/client/command/output"
	"runlog/client/command/session"

	"github.com/spf13/cobra"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
)

func (a *app) auditCheckpointsCommand() *cobra.Command {
	var most uint64
	var since string
	cmd := &cobra.Command{
		Use:   "checkpoints",
		Short: "List the signed checkpoints of the log, newest first",
		Long: `List the signed checkpoints, newest first. Each has the root of the tree over all records of the log. Keep one where the
operators of the cluster cannot reach it: then no change of a record before it stays unnoticed. With -o json each line has the
signed note.

With --since, print the newest checkpoint with the proof that it continues the one in a file that you have kept, in the form in
which witnesses take it. "runlog audit verify --since" verifies it.`,
		Example: "  runlog audit checkpoints --limit 1 -o json | jq -r .note > kept.txt\n" +
			"  runlog audit checkpoints --since kept.txt > newest.txt\n" +
			"  runlog audit verify newest.txt --since kept.txt --key cluster.pub",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithClient(func(c *client.Client) error {
				if since != "" {
					return a.continued(cmd.Context(), c, since)
				}
				seq := c.ListCheckpoints(cmd.Context(), &runlogv1.ListCheckpointsRequest{PageSize: uint32(min(most, 100))})
				return output.List(&a.Output, seq, most, output.JSONLine, checkpointCells,
					"COMPLETE THROUGH", "RUNS", "RECORDS", "KEY", "ROOT")
			})
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "print the newest one, and that it continues the checkpoint in this file")
	session.LimitFlag(cmd.Flags(), &most, 20, "limit of the number of checkpoints")
	return cmd
}

func checkpointCells(c *runlogv1.Checkpoint) []string {
	return []string{output.Stamp(c.GetCompleteThrough()), output.Number(c.GetRuns()), output.Number(c.GetRecords()), c.GetKeyId(), c.GetRoot()}
}

func (a *app) auditKeysCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "keys",
		Short: "List the public keys of the cluster's signatures",
		Long: `List the public keys of the cluster's signatures, oldest first. An auditor needs one of them to verify what the cluster
signed, and must get it from a trusted person: a server that lies would list another key here. The previous key vouches for
an endorsed key.`,
		Example: "  runlog audit keys -o json > cluster.pub",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithClient(func(c *client.Client) error {
				return output.List(&a.Output, signingKeys(cmd.Context(), c), 0, output.JSONLine, keyCells,
					"NUMBER", "CREATED", "ENDORSED", "PUBLIC KEY")
			})
		},
	}
}

func signingKeys(ctx context.Context, c *client.Client) iter.Seq2[*runlogv1.SigningKey, error] {
	return func(yield func(*runlogv1.SigningKey, error) bool) {
		keys, err := c.ListSigningKeys(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		if len(keys) == 0 {
			yield(nil, output.Errorf(output.ExitUnavailable, "the cluster has no signing key yet: its leader makes one once a majority of the members can store it; try again"))
			return
		}
		for _, k := range keys {
			if !yield(k, nil) {
				return
			}
		}
	}
}

func keyCells(k *runlogv1.SigningKey) []string {
	return []string{strconv.FormatUint(k.GetNumber(), 10), output.Stamp(k.GetCreatedAt()), endorsed(k), k.GetPublicKey()}
}

func endorsed(k *runlogv1.SigningKey) string {
	if k.GetEndorsement() == "" {
		return "no"
	}
	return "yes"
}

func (a *app) auditRotateKeyCommand() *cobra.Command {
	req := &runlogv1.RotateSigningKeyRequest{}
	cmd := &cobra.Command{
		Use:   "rotate-key",
		Short: "Replace the key that the cluster signs with",
		Long: `Make a new key, which the cluster signs with from now on. The old key vouches for the new one and is then deleted: the
old public key still verifies what the new key signs. If no node that answers has the old key (AUDIT_KEY_MISSING), the command
fails: bring back a node that has it. If the old key is lost for good, use --old-key-is-lost. Then no key vouches for the new
one: give its public part to all auditors.`,
		Example: "  runlog audit rotate-key",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithClient(func(c *client.Client) error {
				k, err := c.RotateSigningKey(cmd.Context(), req)
				if err != nil {
					return err
				}
				return a.showKey(k)
			})
		},
	}
	cmd.Flags().BoolVar(&req.OldKeyIsLost, "old-key-is-lost", false, "make a key that no other key vouches for, because no node has the old one")
	return cmd
}

func (a *app) showKey(k *runlogv1.SigningKey) error {
	return a.Show(k,
		[2]string{"Number", strconv.FormatUint(k.GetNumber(), 10)},
		[2]string{"Public key", k.GetPublicKey()},
		[2]string{"Endorsed", endorsed(k)},
	)
}
