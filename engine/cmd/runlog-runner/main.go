package main

import (
	"context"

	"github.com/spf13/cobra"

	"runlog/client/command/output"
	"runlog/client/command/session"
)

// version is set by the linker: -ldflags "-X main.version=…".
var version = "dev"

func main() { session.Main(version, run) }

// run executes one command line, prints its error, and returns the exit code.
func run(ctx context.Context, s *session.Session, args []string) output.ExitCode {
	return s.Run(ctx, (&app{Session: s}).rootCommand(), args, nil)
}

// app is the session, as the commands of this program use it.
type app struct {
	*session.Session
	api string // the URL of a runner
	by  string // the operator
}

// defaultListen is where a runner listens.
const defaultListen = "127.0.0.1:7430"

// exitMeanings are the exit codes of this program, which are those of runlog as far as both have
// them.
var exitMeanings = []output.ExitMeaning{
	{Code: output.ExitOK, Meaning: "done; serve: ended by Ctrl-C or SIGTERM"},
	{Code: output.ExitRefused, Meaning: "the runner refused the manifest, or the run cannot be resumed now; serve: the node refuses the scope or the queue"},
	{Code: output.ExitUsage, Meaning: "the command line is wrong, or names a file that does not exist"},
	{Code: output.ExitNotFound, Meaning: "no such run"},
	{Code: output.ExitRunNotOK, Meaning: "run, resume: the run ended FAILED or CANCELLED"},
	{Code: output.ExitUnavailable, Meaning: "no runner, or one without a node; serve: no store; a retry may help"},
	{Code: output.ExitTimeout, Meaning: "run, resume: no answer within --timeout; a run that has begun continues"},
	{Code: output.ExitForbidden, Meaning: "not signed in, or not allowed"},
	{Code: output.ExitFailed, Meaning: "any other failure, such as an address that another process has"},
	{Code: output.ExitInterrupted, Meaning: "run, resume: ended by Ctrl-C or SIGTERM; a run that has begun continues"},
}

func (a *app) rootCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "runlog-runner",
		Short: "Execute runs, with steps that operators attest",
		Long: `The reference engine of runlog. It executes the runs of a queue, with steps that operators attest, and
serves the API of manifests, runs and attestations.

  runlog-runner serve       execute runs, and serve the API
  runlog-runner run FILE    have a runner execute a manifest
  runlog-runner resume RUN  go on with a run whose step was attested

` + output.ExitCodeHelpOf(exitMeanings),
		Version: a.Version,
	}
	a.Register(cmd)
	return session.Group(cmd, a.serveCommand(), a.runCommand(), a.resumeCommand())
}
