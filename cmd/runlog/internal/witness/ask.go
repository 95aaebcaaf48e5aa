package witness

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/tlog"

	"runlog/audit/proof"
	"runlog/audit/witness"
	"runlog/client"
	"runlog/client/command/output"
	runlogv1 "runlog/proto/runlog/v1"
)

// askTimeout bounds how long a witness is waited for.
const askTimeout = 30 * time.Second

func (a *app) askCommand() *cobra.Command {
	var url, key string
	cmd := &cobra.Command{
		Use:   "ask",
		Short: "Have a witness sign the newest checkpoint",
		Long: `Take the newest checkpoint of the cluster to a witness, with the proof that it continues the one that the witness has, and
print it with the signature of the witness. Any witness of C2SP tlog-witness with an Ed25519 or ML-DSA-44 key can be asked.

The exit code is 1 if the witness has signed another history of the log.`,
		Example: "  runlog witness ask --url https://witness.example/acme --witness-key 'witness.example/acme+1b2c3d4e+BA…'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			known, err := proof.ParseWitnessKey(key)
			if err != nil {
				return output.UsageError("--witness-key: %v", err)
			}
			if url == "" {
				return output.UsageError("--url is required")
			}
			return a.WithClient(func(c *client.Client) error { return a.ask(cmd.Context(), c, url, known) })
		},
	}
	cmd.Flags().StringVar(&url, "url", "", "address of the witness, to which /add-checkpoint is added")
	cmd.Flags().StringVar(&key, "witness-key", "", "public key of the witness, name+id+key")
	return cmd
}

func (a *app) ask(ctx context.Context, c *client.Client, url string, key *proof.WitnessKey) error {
	for newest, err := range c.ListCheckpoints(ctx, &runlogv1.ListCheckpointsRequest{PageSize: 1}) {
		if err != nil {
			return err
		}
		w := witness.Client{URL: url, Key: key, HTTP: &http.Client{Timeout: askTimeout}}
		line, err := w.Cosign(ctx, newest.GetNote(), newest.GetRecords(), func(ctx context.Context, earlier, later uint64) ([]tlog.Hash, error) {
			resp, err := c.ProveConsistency(ctx, &runlogv1.ProveConsistencyRequest{OldSize: earlier, NewSize: later})
			if err != nil {
				return nil, err
			}
			return proof.HashesOf(resp.GetHashes())
		})
		if err != nil {
			return askError(err)
		}
		_, err = fmt.Fprint(a.Stdout, newest.GetNote()+line)
		return err
	}
	return output.Errorf(output.ExitNotFound, "the cluster has no checkpoint yet")
}

// askError is the error of a witness that gave no signature.
func askError(err error) error {
	switch {
	case errors.Is(err, witness.ErrConflict):
		return output.WithHint(output.Errorf(output.ExitRefused, "%v", err),
			"the cluster and the witness have two histories of one log: keep the newest checkpoint, and ask the witness's operator for the other")
	case errors.Is(err, witness.ErrRefused):
		return output.Errorf(output.ExitRefused, "%v", err)
	case errors.Is(err, witness.ErrUnreachable):
		return output.Errorf(output.ExitUnavailable, "%v", err)
	}
	return err
}
