package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"runlog/cmd/runlog/internal/output"
)

// Contexts are connections with names, in the user's configuration directory.
type Contexts struct {
	// Current is the context in use; empty: none.
	Current  string                 `json:"current,omitempty"`
	Contexts map[string]*Connection `json:"contexts"`
}

// contextName is what a context may be called.
var contextName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// CheckContextName refuses what is no name of a context.
func CheckContextName(name string) error {
	if !contextName.MatchString(name) {
		return output.UsageError("%q is no name of a context; want 1 to 64 characters of a-z, A-Z, 0-9, '.', '_' and '-'", name)
	}
	return nil
}

// contextsFile returns the path of the file; empty: there is no place for it.
func (s *Session) contextsFile() string {
	dir := s.Getenv("XDG_CONFIG_HOME")
	if dir == "" {
		home := s.Getenv("HOME")
		if home == "" {
			return ""
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "runlog", "contexts.json")
}

// ReadContexts returns the stored contexts; none if there is no file.
func (s *Session) ReadContexts() (*Contexts, error) {
	all := &Contexts{Contexts: map[string]*Connection{}}
	path := s.contextsFile()
	if path == "" {
		return all, nil
	}
	text, err := ReadSecret(path)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, output.UsageError("contexts%v", err)
	}
	if err := json.Unmarshal([]byte(text), all); err != nil || all.Contexts == nil {
		return nil, output.UsageError("contexts %s: it is not what \"runlog context\" writes (%v); remove the file and add the contexts again", path, err)
	}
	return all, nil
}

// WriteContexts stores the contexts, for the user alone.
func (s *Session) WriteContexts(all *Contexts) error {
	path := s.contextsFile()
	if path == "" {
		return output.UsageError("there is no directory for contexts; set HOME or XDG_CONFIG_HOME")
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("contexts: %w; make the directory writable for this user", err)
	}
	// A file of its own, with mode 0600 from the beginning, takes the place of the old one.
	next, err := os.CreateTemp(filepath.Dir(path), "contexts-*")
	if err != nil {
		return fmt.Errorf("contexts: %w; make the directory writable for this user", err)
	}
	_, err = next.Write(append(text, '\n'))
	if err = errors.Join(err, next.Close()); err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("contexts: %w", err), os.Remove(next.Name()))
	}
	return nil
}

// storedContext returns the connection of --context, else of the context in use; empty if there is
// none.
func (s *Session) storedContext() (Connection, error) {
	all, err := s.ReadContexts()
	if err != nil {
		return Connection{}, err
	}
	name := s.Context
	if name == "" {
		name = all.Current
	}
	if name == "" {
		return Connection{}, nil
	}
	c := all.Contexts[name]
	if c == nil {
		return Connection{}, output.UsageError("there is no context %q; runlog context list shows them, runlog context add makes one", name)
	}
	return *c, nil
}
