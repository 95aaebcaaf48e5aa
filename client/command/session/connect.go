package session

import (
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"runlog/client"
	"runlog/client/command/output"
	"runlog/client/contexts"
)

// connectionFlags are the flags of a Connection.
var connectionFlags = []string{"server", "tls", "cacert", "cert", "cert-key", "token", "token-file", "insecure", "context"}

// hasVariable reports whether a flag of the connection is also a variable. RUNLOG_INSECURE is that
// of runlog serve: what a node accepts must not make its commands send tokens in plain text.
func hasVariable(flag string) bool { return flag != "insecure" }

// registerConnection registers the flags of the connection. configure adds what else sets them.
func (s *Session) registerConnection(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.StringVar(&s.Server, "server", DefaultServer, "nodes of the cluster, separated by commas: host, host:port, http://host or https://host; also RUNLOG_SERVER")
	f.BoolVar(&s.TLS, "tls", false, "connect with TLS, as https:// in --server does; each of these flags but --insecure is also a variable, such as RUNLOG_TLS")
	f.StringVar(&s.CACert, "cacert", "", "PEM file of the certificate authority of the nodes (default: those of this system)")
	f.StringVar(&s.Cert, "cert", "", "PEM file of the client certificate, with its key unless --cert-key names it")
	f.StringVar(&s.CertKey, "cert-key", "", "PEM file of the key of --cert")
	f.StringVar(&s.Token, "token", "", "API token or access token; other users see it in the list of processes: --token-file and RUNLOG_TOKEN keep it out")
	f.StringVar(&s.TokenFile, "token-file", "", "file of the token, readable for its owner alone")
	f.BoolVar(&s.Insecure, "insecure", false, "allow a token to leave this machine in plain text; has no variable")
	f.StringVar(&s.Context, "context", "", "name of the context to use (runlog context list)")
	s.flags = f
}

// configure completes the connection: a flag wins over the environment, which wins over the
// context.
func (s *Session) configure() error {
	if s.configured || s.flags == nil {
		return nil
	}
	if err := oneToken(s.flags.Changed, func(name string) string { return "--" + name }); err != nil {
		return err
	}
	if s.flags.Changed("token") && s.Token == "" {
		return output.UsageError("--token is empty; give a token, or leave the flag out")
	}
	env := func(name string) string {
		if !hasVariable(name) {
			return ""
		}
		return s.Getenv(Variable(name))
	}
	// What names the identity at one place keeps out the identity of the next.
	hides := map[string][]string{"token": {"token-file", "cert"}, "token-file": {"token", "cert"}, "cert-key": {"cert"}}
	set := map[string]bool{}
	for _, name := range connectionFlags {
		set[name] = s.flags.Changed(name)
	}
	take := func(get func(string) string) error {
		now := map[string]string{}
		for _, name := range connectionFlags {
			hidden := slices.ContainsFunc(hides[name], func(by string) bool { return set[by] })
			if value := get(name); value != "" && !set[name] && !hidden {
				now[name] = value
			}
		}
		for name, value := range now {
			if err := s.flags.Set(name, value); err != nil {
				return output.UsageError("%s: %v", Variable(name), err)
			}
		}
		for name := range now {
			set[name] = true
		}
		return nil
	}
	if !set["token"] && !set["token-file"] {
		if err := oneToken(func(name string) bool { return env(name) != "" }, Variable); err != nil {
			return err
		}
	}
	if err := take(env); err != nil {
		return err
	}
	all, err := s.ReadContexts()
	if err != nil {
		return err
	}
	stored, err := all.Choose(s.Context)
	if err != nil {
		return output.UsageError("%v", err)
	}
	s.keepBack(&stored, set)
	if err := take(value(&stored)); err != nil {
		return err
	}
	s.configured = true
	return nil
}

// keepBack drops the token of a context if the command names another server: a stored token is for
// the stored server alone. set has the flags that have a value without the context.
func (s *Session) keepBack(stored *contexts.Connection, set map[string]bool) {
	if !set["token"] && !set["token-file"] && !set["cert"] {
		s.storedFor = stored.Server
	}
	if !set["server"] || stored.Server == s.Server {
		return
	}
	if stored.Token != "" || stored.TokenFile != "" {
		s.unsent = stored.Server
	}
	stored.Token, stored.TokenFile = "", ""
}

// ReadContexts returns the stored contexts; none if there is no file.
func (s *Session) ReadContexts() (*contexts.File, error) {
	all, err := contexts.Read(contexts.Path(s.Getenv))
	if err != nil {
		return nil, output.UsageError("%v", err)
	}
	return all, nil
}

// WriteContexts stores the contexts, for the user alone.
func (s *Session) WriteContexts(all *contexts.File) error {
	path := contexts.Path(s.Getenv)
	if path == "" {
		return output.UsageError("there is no directory for contexts; set HOME or XDG_CONFIG_HOME")
	}
	return all.Write(path)
}

// oneToken refuses two tokens from one place: neither can be told to be the one that is meant.
func oneToken(given func(flag string) bool, called func(flag string) string) error {
	if given("token") && given("token-file") {
		return output.UsageError("%s and %s exclude each other; give one", called("token"), called("token-file"))
	}
	return nil
}

// value returns a function that returns the text of a flag.
func value(c *contexts.Connection) func(flag string) string {
	onlyTrue := func(b bool) string {
		if !b {
			return ""
		}
		return strconv.FormatBool(b)
	}
	return func(flag string) string {
		return map[string]string{"server": c.Server, "tls": onlyTrue(c.TLS), "cacert": c.CACert, "cert": c.Cert, "cert-key": c.CertKey,
			"token": c.Token, "token-file": c.TokenFile, "insecure": onlyTrue(c.Insecure)}[flag]
	}
}

// FlagConnection returns the connection of the command line alone, with absolute paths. Its files
// must be usable.
func (s *Session) FlagConnection() (*contexts.Connection, error) {
	s.configured = true // Neither the environment nor a context belongs to it.
	if err := oneToken(s.flags.Changed, func(name string) string { return "--" + name }); err != nil {
		return nil, err
	}
	if _, _, err := s.Transport(); err != nil {
		return nil, err
	}
	c := s.Connection
	for _, path := range []*string{&c.CACert, &c.Cert, &c.CertKey, &c.TokenFile} {
		if *path == "" {
			continue
		}
		var err error
		if *path, err = filepath.Abs(*path); err != nil {
			return nil, err
		}
	}
	return &c, nil
}

// ClientOptions completes the options of a client with the connection's TLS and token.
func (s *Session) ClientOptions(opts client.Options) (client.Options, error) {
	if err := s.configure(); err != nil {
		return opts, err
	}
	c := &s.Connection
	opts.DialOptions, opts.Insecure = s.DialOptions, c.Insecure
	opts, err := opts.WithToken(c)
	if err != nil {
		return opts, output.UsageError("--%v", err)
	}
	secure, err := client.Secure(c.Server)
	if err != nil {
		return opts, output.UsageError("--server: %v", err)
	}
	if opts.TLSFiles, err = c.TLSFiles(secure); err != nil {
		return opts, output.UsageError("--%v", err)
	}
	return opts, nil
}

// Transport returns options of connections that other packages make to the servers.
func (s *Session) Transport() (servers []string, options []grpc.DialOption, err error) {
	opts, err := s.ClientOptions(client.Options{})
	if err != nil {
		return nil, nil, err
	}
	if servers, err = s.Servers(); err != nil {
		return nil, nil, err
	}
	for _, server := range servers {
		if options, err = opts.Transport(server); err != nil {
			return nil, nil, dialError(err)
		}
	}
	return servers, append(options, s.DialOptions...), nil
}

// dialError tells which flags repair the error of a connection.
func dialError(err error) error {
	if errors.Is(err, client.ErrPlainToken) {
		return output.UsageError("the token is not sent to another machine in plain text; add --tls, or write https:// before --server; --insecure sends it all the same")
	}
	return output.UsageError("%s", strings.TrimPrefix(err.Error(), "client: "))
}
