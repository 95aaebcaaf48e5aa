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
	if opts.Token, err = stored.ReadToken(); err != nil {
		return nil, fmt.Errorf("client: context %s: %w", name, err)
	}
	opts.Insecure = stored.Insecure
	return Dial(stored.Server, opts)
}
