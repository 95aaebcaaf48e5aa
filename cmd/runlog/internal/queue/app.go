// Package queue has the commands of queues: queue, and run request.
package queue

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"runlog/client/command/output"
	"runlog/client/command/session"
)

// app is the session, as the commands of this package use it.
type app struct{ *session.Session }

// Commands returns the commands of queues.
func Commands(s *session.Session) []*cobra.Command {
	a := &app{s}
	queue := session.Group(&cobra.Command{Use: "queue", Short: "Show and steer the queues of runs that wait for their start"},
		a.lsCommand(), a.showCommand(), a.putCommand(), a.pauseCommand(), a.resumeCommand(),
		a.cancelCommand(), a.prioritizeCommand(), a.requeueCommand(), a.leaseCommand(), a.releaseCommand())
	run := session.Group(&cobra.Command{Use: "run", Short: "Request runs"}, a.requestCommand())
	return []*cobra.Command{queue, run}
}

// scope names a queue, or the queues of a tenant, a project or an environment.
type scope struct{ tenant, project, environment, queue string }

// scopeFlags name the fields of a scope, the widest first.
var scopeFlags = []string{"tenant", "project", "environment"}

func (s *scope) addFlags(flags *pflag.FlagSet, usage string) {
	flags.StringVar(&s.tenant, "tenant", "", "tenant of the "+usage)
	flags.StringVar(&s.project, "project", "", "project of the "+usage)
	flags.StringVar(&s.environment, "environment", "", "environment of the "+usage)
}

// one takes the name of one queue from the command line.
func (s *scope) one(flags *pflag.FlagSet, args []string) error {
	s.take(args)
	return require(flags, scopeFlags...)
}

// some takes the name of one or several queues.
func (s *scope) some(flags *pflag.FlagSet, args []string) error {
	if err := session.RefuseEmpty(flags, scopeFlags...); err != nil {
		return err
	}
	s.take(args)
	values := []string{s.tenant, s.project, s.environment, s.queue}
	for i, flag := range scopeFlags {
		if values[i] == "" && strings.Join(values[i:], "") != "" {
			return output.UsageError("--%s is required with a narrower part of a queue's name", flag)
		}
	}
	return nil
}

func (s *scope) take(args []string) {
	if len(args) > 0 {
		s.queue = args[0]
	}
}

// require wants a value of each flag, and names all that have none.
func require(flags *pflag.FlagSet, names ...string) error {
	var missing []string
	for _, name := range names {
		if flags.Lookup(name).Value.String() == "" {
			missing = append(missing, "--"+name)
		}
	}
	switch len(missing) {
	case 0:
		return nil
	case 1:
		return output.UsageError("%s is required", missing[0])
	default:
		return output.UsageError("%s and %s are required", strings.Join(missing[:len(missing)-1], ", "), missing[len(missing)-1])
	}
}

// oneQueue checks the arguments of a command that takes the name of a queue, or none.
var oneQueue = session.Arguments(0, 1, "the name of one queue, or none for \"default\"")
