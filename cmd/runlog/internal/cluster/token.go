package cluster

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/client"
	"runlog/client/command/output"
	"runlog/client/command/session"
	runlogv1 "runlog/proto/runlog/v1"
)

func (a *app) clusterTokenCommand() *cobra.Command {
	return session.Group(&cobra.Command{
		Use:   "token",
		Short: "Make, list and revoke join tokens",
		Long: `Make, list and revoke the tokens with which new nodes join a cluster whose nodes have no certificates. A
node with a certificate of the cluster's authority (runlog cluster certs) needs none.`,
	}, a.createTokenCommand(), a.listTokensCommand(), a.revokeTokenCommand())
}

func (a *app) createTokenCommand() *cobra.Command {
	var expires time.Duration
	var uses uint32
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make a join token, and print it this once",
		Long: `Make a join token, and print it. The cluster keeps a hash alone, so the token cannot be shown again. The
new node reads it from a file: runlog serve --join ADDRESS --join-token-file FILE. This needs the role
admin in all tenants.`,
		Example: "  (umask 077; runlog cluster token create > join.token)\n  runlog cluster token create --expires 24h --uses 3",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if expires <= 0 || uses == 0 {
				return output.UsageError("--expires and --uses must be positive")
			}
			req := &runlogv1.CreateJoinTokenRequest{ExpireTime: timestamppb.New(time.Now().Add(expires)), Uses: &uses}
			return a.WithClient(func(c *client.Client) error {
				resp, err := c.CreateJoinToken(cmd.Context(), req)
				if err != nil {
					return err
				}
				if a.Format == output.JSON {
					return a.Object(resp)
				}
				fmt.Fprintf(a.Stderr, "join token %s for %s, until %s; it is not shown again\n",
					resp.GetTokenId(), output.Plural(int(uses), "node"), output.Stamp(resp.GetExpireTime()))
				_, err = fmt.Fprintln(a.Stdout, resp.GetToken())
				return err
			})
		},
	}
	cmd.Flags().DurationVar(&expires, "expires", time.Hour, "time until the token ends, at most 720h")
	cmd.Flags().Uint32Var(&uses, "uses", 1, "how many nodes the token admits, at most 100")
	return cmd
}

func (a *app) listTokensCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the join tokens, without their texts",
		Long:  "List the join tokens, without their texts. A token is listed for 30 days after its end.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithClient(func(c *client.Client) error {
				resp, err := c.ListJoinTokens(cmd.Context())
				if err != nil {
					return err
				}
				return output.List(&a.Output, output.All(resp.GetTokens()), 0, output.JSONLine, joinTokenCells,
					"TOKEN ID", "USES", "CREATED", "EXPIRES", "REVOKED")
			})
		},
	}
}

func joinTokenCells(t *runlogv1.JoinToken) []string {
	return []string{t.GetTokenId(), fmt.Sprintf("%d of %d", t.GetUsed(), t.GetUses()), output.Stamp(t.GetCreateTime()),
		output.Stamp(t.GetExpireTime()), output.Stamp(t.GetRevokeTime())}
}

func (a *app) revokeTokenCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke ID",
		Short: "End a join token forever",
		Long: `End a join token forever. A node that the token has admitted and that is no member yet does not become
one; a member stays one (runlog cluster remove). The id is that of runlog cluster token list.`,
		Args: session.OneArgument("the id of one join token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithClient(func(c *client.Client) error {
				resp, err := c.RevokeJoinToken(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return a.Tell("join token "+resp.GetToken().GetTokenId()+" is revoked", resp.GetToken())
			})
		},
	}
}
