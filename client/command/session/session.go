// Package session is one invocation of the command line: its streams and flags, its connection to
// the cluster, and its last error.
package session

import (
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	"runlog/client"
	"runlog/client/address"
	"runlog/client/command/output"
	"runlog/client/contexts"
)

// Defaults of the flags that every command has.
const (
	DefaultServer  = "127.0.0.1:7410"
	DefaultTimeout = 30 * time.Second
)

// Session is what all commands share.
type Session struct {
	output.Output
	Stdin  io.Reader
	Getenv func(string) string
	// Environ returns all variables as NAME=value; nil: none.
	Environ func() []string
	// Version of this binary.
	Version string

	// Connection is complete once ClientOptions or Servers has returned.
	contexts.Connection
	// Context is the name that --context gives.
	Context    string
	flags      *pflag.FlagSet
	configured bool
	// unsent is the server of a stored token that was not used, because --server names another.
	unsent string
	// storedFor is the server of the stored token that the connection has; empty: its token, if
	// any, was given to this command.
	storedFor string
	// Timeout bounds one call, retries included; 0 is no bound.
	Timeout time.Duration
	// DialOptions of every connection.
	DialOptions []grpc.DialOption
}

// Register registers the flags that every command has.
func (s *Session) Register(cmd *cobra.Command) {
	s.registerConnection(cmd)
	flags := cmd.PersistentFlags()
	flags.VarP(&s.Format, "output", "o", "table, or json: one object a line")
	flags.DurationVar(&s.Timeout, "timeout", DefaultTimeout, "longest wait for one answer, retries included; 0 waits without limit")
	Complete(cmd, "output", "table", "json")
}

// Dial returns a client of the cluster. The client makes a few attempts to reach a server that has
// never answered. If a server has answered before, it may restart or elect a leader: the client
// then retries until Timeout.
func (s *Session) Dial() (*client.Client, error) {
	return s.dial(client.Options{MaxAttempts: 30, FirstAttempts: 3})
}

// DialAttempts returns a client that makes at most so many attempts of each call.
func (s *Session) DialAttempts(attempts int) (*client.Client, error) {
	return s.dial(client.Options{MaxAttempts: attempts})
}

func (s *Session) dial(opts client.Options) (*client.Client, error) {
	servers, err := s.Servers()
	if err != nil {
		return nil, err
	}
	return s.DialServer(strings.Join(servers, ","), opts)
}

// DialServer returns a client of a server, or of several, with the session's connection.
func (s *Session) DialServer(server string, opts client.Options) (*client.Client, error) {
	opts, err := s.ClientOptions(opts)
	if err != nil {
		return nil, err
	}
	opts.Timeout = s.Timeout
	c, err := client.Dial(server, opts)
	if err != nil {
		return nil, dialError(err)
	}
	return c, nil
}

// WithClient calls f with a client of the cluster.
func (s *Session) WithClient(f func(*client.Client) error) error {
	c, err := s.Dial()
	if err != nil {
		return err
	}
	defer c.Close()
	return f(c)
}

// Servers returns the addresses in Server, each once and with its port.
func (s *Session) Servers() ([]string, error) {
	if err := s.configure(); err != nil {
		return nil, err
	}
	servers, err := address.List(s.Server)
	if err != nil {
		return nil, output.UsageError("--server: %v", err)
	}
	return servers, nil
}

// Complete offers fixed values of a flag to the shell.
func Complete(cmd *cobra.Command, flag string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // The flag does not exist.
	}
}
