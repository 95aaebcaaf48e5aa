// Package access has the commands of identities: token and whoami, and the contexts with a user's
// servers and credentials.
package access

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"runlog/client"
	"runlog/client/command/output"
	"runlog/client/command/session"
	runlogv1 "runlog/proto/runlog/v1"
)

// app is the session, as the commands of this package use it.
type app struct{ *session.Session }

// Commands returns the commands of access.
func Commands(s *session.Session) []*cobra.Command {
	a := &app{s}
	token := session.Group(&cobra.Command{Use: "token", Short: "Make, list and revoke API tokens"},
		a.createCommand(), a.listCommand(), a.revokeCommand())
	return []*cobra.Command{token, a.whoAmICommand(), a.contextCommand()}
}

func (a *app) createCommand() *cobra.Command {
	var (
		tenants, roles, actFor []string
		expires                time.Duration
	)
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make an API token, and print it this once",
		Long: `Make an API token for the identity token:NAME, and print it. The cluster keeps a hash alone, so the token
cannot be shown again. This needs the role admin in all tenants.`,
		Example: "  (umask 077; runlog token create ci --tenant acme --role producer --role reader --expires 720h > ci.token)",
		Args:    session.OneArgument("the name of the token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &runlogv1.CreateTokenRequest{Name: args[0], Tenants: tenants, ActFor: actFor}
			for _, name := range roles {
				role := runlogv1.Role_Value(runlogv1.Role_Value_value[strings.ToUpper(name)])
				if role == 0 {
					return output.UsageError("--role %q is no role; the roles are %s", name, roleList())
				}
				req.Roles = append(req.Roles, role)
			}
			if len(tenants) == 0 || len(roles) == 0 {
				return output.UsageError("a token needs --tenant (* for all) and --role")
			}
			if expires < 0 {
				return output.UsageError("--expires %v is negative; 0 means never", expires)
			}
			if expires > 0 {
				var err error
				if req.ExpireTime, err = session.Moment("expires", time.Now().Add(expires).UTC().Format(time.RFC3339), time.Now()); err != nil {
					return err
				}
			}
			return a.WithClient(func(c *client.Client) error {
				resp, err := c.CreateToken(cmd.Context(), req)
				if err != nil {
					return err
				}
				if a.Format == output.JSON {
					return a.Object(resp)
				}
				fmt.Fprintf(a.Stderr, "token %s for token:%s; it is not shown again\n", resp.GetTokenId(), args[0])
				_, err = fmt.Fprintln(a.Stdout, resp.GetToken())
				return err
			})
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&tenants, "tenant", nil, "tenants of the token, or * for all; may be repeated")
	f.StringSliceVar(&roles, "role", nil, roleList()+"; may be repeated")
	f.StringSliceVar(&actFor, "act-for", nil, "identities in whose names it may attest steps, such as token:jed, or * for all; may be repeated")
	f.DurationVar(&expires, "expires", 0, "time until the token ends, such as 720h; 0: never")
	session.Complete(cmd, "role", roleWords()...)
	return cmd
}

// roleWords are the names of the roles, as the command line has them.
func roleWords() (words []string) {
	for role := runlogv1.Role_PRODUCER; runlogv1.Role_Value_name[int32(role)] != ""; role++ {
		words = append(words, strings.ToLower(role.String()))
	}
	return words
}

func roleList() string { return strings.Join(roleWords(), ", ") }

func (a *app) listCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the API tokens, without their texts",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithClient(func(c *client.Client) error {
				seq := client.Pages(cmd.Context(), &runlogv1.ListTokensRequest{PageSize: 1000}, c.ListTokens, (*runlogv1.ListTokensResponse).GetTokens)
				return output.List(&a.Output, seq, 0, output.JSONLine, tokenCells,
					"TOKEN ID", "NAME", "TENANTS", "ROLES", "ACTS FOR", "CREATED", "EXPIRES", "REVOKED")
			})
		},
	}
}

func tokenCells(t *runlogv1.Token) []string {
	return []string{t.GetTokenId(), t.GetName(), strings.Join(t.GetTenants(), ","), roleNames(t.GetRoles()), strings.Join(t.GetActFor(), ","),
		output.Stamp(t.GetCreateTime()), output.Stamp(t.GetExpireTime()), output.Stamp(t.GetRevokeTime())}
}

func roleNames(roles []runlogv1.Role_Value) string {
	names := make([]string, len(roles))
	for i, r := range roles {
		names[i] = strings.ToLower(r.String())
	}
	return strings.Join(names, ",")
}

func (a *app) revokeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke ID",
		Short: "End an API token forever",
		Long:  "End an API token forever. Streams that were opened with it end within 30 s. The id is that of runlog token list.",
		Args:  session.OneArgument("the id of one token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithClient(func(c *client.Client) error {
				resp, err := c.RevokeToken(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return a.Tell(fmt.Sprintf("token %s (%s) is revoked", resp.GetToken().GetTokenId(), resp.GetToken().GetName()), resp.GetToken())
			})
		},
	}
}

func (a *app) whoAmICommand() *cobra.Command {
	return &cobra.Command{
		Use:   "whoami",
		Short: "Show the identity that the server takes you for",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.WithClient(func(c *client.Client) error {
				who, err := c.WhoAmI(cmd.Context())
				if err != nil {
					return err
				}
				return a.Show(who, [2]string{"name", who.GetName()}, [2]string{"tenants", strings.Join(who.GetTenants(), ",")},
					[2]string{"roles", roleNames(who.GetRoles())}, [2]string{"acts for", output.Dash(strings.Join(who.GetActFor(), ","))},
					[2]string{"expires", output.Dash(output.Stamp(who.GetExpireTime()))})
			})
		},
	}
}
