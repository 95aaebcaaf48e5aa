package main

import (
	"bufio"
	"context"
	"fmt"
	"iter"
	"strconv"

	"github.com/spf13/cobra"

	"runlog/client"
	runlogv1 "runlog/proto/runlog/v1"
)

func (a *app) auditCheckpointsCommand() *cobra.Command {
	var most uint64
	cmd := &cobra.Command{
		Use:   "checkpoints",
		Short: "List what the cluster has signed about all its runs, newest first",
		Long: `List the signed checkpoints, newest first: each has the root of a Merkle tree over the heads of all runs. Keep one in a
place that the operators of the cluster cannot reach, and they cannot change anything before it unseen. With -o json each
line has the signed note itself.`,
		Example: "  runlog audit checkpoints --limit 1 -o json | jq -r .note > checkpoint.txt\n" +
			"  runlog audit verify checkpoint.txt --key \"$(cat cluster.pub)\"",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.asking(func(c *client.Client) error {
				seq := c.ListCheckpoints(cmd.Context(), &runlogv1.ListCheckpointsRequest{PageSize: uint32(min(most, 100))})
				return list(a, seq, most, func(c *runlogv1.Checkpoint) ([]byte, error) { return jsonLine(c) }, checkpointCells,
					"COMPLETE THROUGH", "RUNS", "EVENTS", "KEY", "ROOT")
			})
		},
	}
	limitFlag(cmd.Flags(), &most, 20, "at most so many")
	return cmd
}

func checkpointCells(c *runlogv1.Checkpoint) []string {
	return []string{stamp(c.GetCompleteThrough()), number(c.GetRuns()), number(c.GetEvents()), c.GetKeyId(), c.GetRoot()}
}

func (a *app) auditKeysCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "keys",
		Short: "List the public keys with which the cluster has signed",
		Long: `List the public keys with which the cluster has signed, oldest first. Who is to verify what the cluster has signed needs
one of them, and must have it from somebody whom they trust: a server that lies would show another one here. An endorsed
key is one that the key before vouches for.`,
		Example: "  runlog audit keys -o json | jq -r .publicKey",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.asking(func(c *client.Client) error {
				return list(a, signingKeys(cmd.Context(), c), 0, func(k *runlogv1.SigningKey) ([]byte, error) { return jsonLine(k) }, keyCells,
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
		for _, k := range keys {
			if !yield(k, nil) {
				return
			}
		}
	}
}

func keyCells(k *runlogv1.SigningKey) []string {
	return []string{strconv.FormatUint(k.GetNumber(), 10), stamp(k.GetCreatedAt()), endorsed(k), k.GetPublicKey()}
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
		Short: "Make a new key with which the cluster signs from now on",
		Long: `Make a new key with which the cluster signs from now on. The old one vouches for it, so that who has the old public key can
verify what the new one signs, and is forgotten. While no node that answers has the old key (AUDIT_KEY_MISSING) nothing is
made: bring back one that has it. Where there is none any more, say so with --old-key-is-lost. Nothing vouches for the new key
then: give its public part to everybody who verifies.`,
		Example: "  runlog audit rotate-key",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.asking(func(c *client.Client) error {
				k, err := c.RotateSigningKey(cmd.Context(), req)
				if err != nil {
					return err
				}
				return a.showKey(k)
			})
		},
	}
	cmd.Flags().BoolVar(&req.OldKeyIsLost, "old-key-is-lost", false, "make a key for which nothing vouches, where no node has the old one")
	return cmd
}

func (a *app) showKey(k *runlogv1.SigningKey) error {
	if a.format == formatJSON {
		line, err := jsonLine(k)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.stdout, "%s\n", line)
		return err
	}
	out := bufio.NewWriter(a.stdout)
	facts(out,
		[2]string{"Number", strconv.FormatUint(k.GetNumber(), 10)},
		[2]string{"Public key", k.GetPublicKey()},
		[2]string{"Endorsed", endorsed(k)},
	)
	return out.Flush()
}
