package access

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"runlog/client/command/output"
	"runlog/client/command/session"
	"runlog/client/contexts"
)

func (a *app) contextCommand() *cobra.Command {
	return session.Group(&cobra.Command{
		Use:   "context",
		Short: "Keep servers and credentials under a name",
		Long: `Keep servers and credentials under a name, in a file that only this user can read. A flag wins over the
environment, which wins over the context. --context or RUNLOG_CONTEXT names another context than the one in use.`,
	}, a.contextAddCommand(), a.contextUseCommand(), a.contextListCommand(), a.contextRemoveCommand())
}

// changeContexts reads the contexts, changes them and stores them.
func (a *app) changeContexts(said string, change func(*contexts.File) error) error {
	all, err := a.ReadContexts()
	if err != nil {
		return err
	}
	if err := change(all); err != nil {
		return err
	}
	if err := a.WriteContexts(all); err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.Stderr, said)
	return err
}

func (a *app) contextAddCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "add NAME",
		Short:   "Store the connection flags of this command line under a name",
		Long:    "Store the connection flags of this command line under a name, in place of an earlier context with this name. The first context is in use.",
		Example: "  runlog context add prod --server https://runlog.example.com --cacert ca.crt --token-file ci.token",
		Args:    session.OneArgument("the name of the context"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := contexts.CheckName(args[0]); err != nil {
				return output.UsageError("%v", err)
			}
			c, err := a.FlagConnection()
			if err != nil {
				return err
			}
			return a.changeContexts("context "+args[0]+" is stored", func(all *contexts.File) error {
				all.Contexts[args[0]] = c
				if len(all.Contexts) == 1 {
					all.Current = args[0]
				}
				return nil
			})
		},
	}
}

func (a *app) contextUseCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "use NAME",
		Short: "Use a context from now on",
		Args:  session.OneArgument("the name of the context"),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.changeContexts("context "+args[0]+" is in use", func(all *contexts.File) error {
				all.Current = args[0]
				return known(all, args[0])
			})
		},
	}
}

func (a *app) contextRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME",
		Short: "Remove a context",
		Args:  session.OneArgument("the name of the context"),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.changeContexts("context "+args[0]+" is removed", func(all *contexts.File) error {
				err := known(all, args[0])
				delete(all.Contexts, args[0])
				if all.Current == args[0] {
					all.Current = ""
				}
				return err
			})
		},
	}
}

func known(all *contexts.File, name string) error {
	if all.Contexts[name] == nil {
		return output.UsageError("there is no context %q; runlog context list shows them, runlog context add makes one", name)
	}
	return nil
}

// listed is a context without its token.
type listed struct {
	Name   string `json:"name"`
	InUse  bool   `json:"inUse"`
	Server string `json:"server"`
	TLS    bool   `json:"tls"`
	As     string `json:"as,omitempty"`
}

func (a *app) contextListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the contexts, without their tokens",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			all, err := a.ReadContexts()
			if err != nil {
				return err
			}
			var list []listed
			for _, name := range slices.Sorted(maps.Keys(all.Contexts)) {
				c := all.Contexts[name]
				l := listed{Name: name, InUse: name == all.Current, Server: c.Server, TLS: c.TLS || c.CACert != "" || c.Cert != ""}
				switch {
				case c.Token != "" || c.TokenFile != "":
					l.As = "token"
				case c.Cert != "":
					l.As = "certificate"
				}
				list = append(list, l)
			}
			return output.List(&a.Output, output.All(list), 0, func(l listed) ([]byte, error) { return json.Marshal(l) }, func(l listed) []string {
				inUse := ""
				if l.InUse {
					inUse = "*"
				}
				return []string{inUse, l.Name, l.Server, l.As}
			}, "IN USE", "NAME", "SERVER", "AS")
		},
	}
}
