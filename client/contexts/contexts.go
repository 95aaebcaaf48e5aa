// Package contexts keeps connections under names, in the user's configuration directory: "runlog
// context" writes them, and the commands and client.DialContext use them.
package contexts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

// File is what the file of contexts holds.
type File struct {
	// Current is the context in use; empty: none.
	Current  string                 `json:"current,omitempty"`
	Contexts map[string]*Connection `json:"contexts"`
}

// contextName is what a context may be called.
var contextName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// CheckName refuses what is no name of a context.
func CheckName(name string) error {
	if !contextName.MatchString(name) {
		return fmt.Errorf("%q is no name of a context; want 1 to 64 characters of a-z, A-Z, 0-9, '.', '_' and '-'", name)
	}
	return nil
}

// Path returns the path of the user's file: XDG_CONFIG_HOME/runlog/contexts.json, or the same below
// HOME/.config. Empty: the environment names no place for it.
func Path(getenv func(string) string) string {
	dir := getenv("XDG_CONFIG_HOME")
	if dir == "" {
		home := getenv("HOME")
		if home == "" {
			return ""
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "runlog", "contexts.json")
}

// Read returns the stored contexts; none if there is no file, or path is empty.
func Read(path string) (*File, error) {
	all := &File{Contexts: map[string]*Connection{}}
	if path == "" {
		return all, nil
	}
	text, err := ReadSecret(path)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, fmt.Errorf("contexts%w", err)
	}
	if err = json.Unmarshal([]byte(text), all); err == nil && all.Contexts == nil {
		err = errors.New("it has no contexts")
	}
	if err != nil {
		return nil, fmt.Errorf("contexts %s: it is not what \"runlog context\" writes (%w); remove the file and add the contexts again", path, err)
	}
	return all, nil
}

// Write stores the contexts, for the user alone.
func (f *File) Write(path string) error {
	text, err := json.MarshalIndent(f, "", "  ")
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

// Choose returns the connection with a name, or, if it is empty, the one in use. It returns an
// empty connection if none is in use.
func (f *File) Choose(name string) (Connection, error) {
	if name == "" {
		name = f.Current
	}
	if name == "" {
		return Connection{}, nil
	}
	c := f.Contexts[name]
	if c == nil {
		return Connection{}, fmt.Errorf("there is no context %q; runlog context list shows them, runlog context add makes one", name)
	}
	return *c, nil
}
