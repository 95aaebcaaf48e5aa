package client

import (
	"fmt"
	"os"

	"runlog/client/contexts"
)

// DialContext is Dial with a connection that "runlog context add" has stored on this machine. Its
// addresses, TLS and credentials replace those of opts. name: the context; empty: the one in use.
func DialContext(name string, opts Options) (*Client, error) {
	all, err := contexts.Read(contexts.Path(os.Getenv))
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	stored, err := all.Choose(name)
	if err == nil && stored.Server == "" {
		err = fmt.Errorf("no context is in use, or it names no server; runlog context add makes one")
	}
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	secure, err := Secure(stored.Server)
	if err != nil {
		return nil, fmt.Errorf("client: context %s: %w", name, err)
	}
	if opts.TLSFiles, err = stored.TLSFiles(secure); err != nil {
		return nil, fmt.Errorf("client: context %s: %w", name, err)
	}
	if opts, err = opts.WithToken(&stored); err != nil {
		return nil, fmt.Errorf("client: context %s: %w", name, err)
	}
	opts.Insecure = stored.Insecure
	return Dial(stored.Server, opts)
}

// WithToken returns the options with the token of a connection in place of their own. If it is in a
// file, the file is read again when it changes.
func (o Options) WithToken(of *contexts.Connection) (Options, error) {
	files, err := of.TokenFiles()
	if err != nil {
		return o, err
	}
	if o.TokenFiles = files; files != nil {
		o.Token = *files.Last()
		return o, nil
	}
	o.Token, err = of.ReadToken()
	return o, err
}
