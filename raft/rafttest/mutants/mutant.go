package mutants

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Mutant is one bug.
type Mutant struct {
	Name string
	// Breaks names the rules of the contract, or the decisions, that do not hold with it.
	Breaks string
	// What is wrong, in a sentence.
	What  string
	Edits []Edit
	// Control are those of the edits that are no bug: they make time pass where a process may be held up anyway. With them alone
	// nothing must be found.
	Control []Edit
}

// Edit replaces a text that a file has exactly once.
type Edit struct {
	// Module of the file; empty: this one.
	Module string
	// File is its path in the module.
	File string
	Old  string
	New  string
}

// Dirs tells where modules lie, by path; that of this one under the empty path.
type Dirs map[string]string

// Modules are the other modules that mutants edit.
func Modules() []string { return []string{hashicorpRaft} }

const hashicorpRaft = "github.com/hashicorp/raft"

// errEdit means that a table does not fit the files any more.
var errEdit = errors.New("mutants: edit does not fit")

// Overlay writes edited copies of files into a directory, and beside them the overlay.json that go build takes. It returns
// the path of that.
func Overlay(dir string, dirs Dirs, edits []Edit) (string, error) {
	files := map[string]string{}
	for _, e := range edits {
		at := e.path(dirs)
		text, known := files[at]
		if !known {
			read, err := os.ReadFile(at)
			if err != nil {
				return "", err
			}
			text = string(read)
		}
		var err error
		if files[at], err = e.apply(text); err != nil {
			return "", err
		}
	}
	replace := map[string]string{}
	for at, text := range files {
		if _, err := parser.ParseFile(token.NewFileSet(), at, text, parser.SkipObjectResolution); err != nil {
			return "", fmt.Errorf("%w: %w", errEdit, err)
		}
		to := filepath.Join(dir, strconv.Itoa(len(replace))+"-"+filepath.Base(at))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[at] = to
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	at := filepath.Join(dir, "overlay.json")
	return at, os.WriteFile(at, overlay, 0o600)
}

func (e *Edit) path(dirs Dirs) string {
	return filepath.Join(dirs[e.Module], filepath.FromSlash(e.File))
}

func (e *Edit) apply(text string) (string, error) {
	if n := strings.Count(text, e.Old); n != 1 {
		return "", fmt.Errorf("%w: %s has %d times\n%s", errEdit, e.File, n, e.Old)
	}
	if e.New == e.Old {
		return "", fmt.Errorf("%w: nothing changes in %s", errEdit, e.File)
	}
	return strings.Replace(text, e.Old, e.New, 1), nil
}
