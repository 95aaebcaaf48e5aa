package mutants

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Mutant is one bug.
type Mutant struct {
	Name string
	// Breaks names the rules of the contract, or the decisions, that do not hold with it.
	Breaks string
	// What is wrong, in a sentence.
	What  string
	Edits []Edit
	// Control lists the edits that are no bug: they delay a process where a real one can be delayed
	// too. With them alone the simulator must find nothing.
	Control []Edit
	// Faults are the kinds of faults, and the scenarios, that the trial looks for it with. Default:
	// all kinds of faults; how often they happen then depends on the seed.
	Faults []string
	// Every is the mean time between two of Faults. Default: 2 s.
	Every time.Duration
	// Package is where Test looks for it in place of the simulator, which does not use it: a folder
	// of this module. Empty: the simulator.
	Package string
	// Test is the test of Package. It draws its cases afresh every time.
	Test string
}

// Edit replaces a text that occurs exactly once in a file.
type Edit struct {
	// Module of the file; empty: this one.
	Module string
	// File is its path in the module.
	File string
	Old  string
	New  string
}

// Dirs maps modules to their directories, and the empty path to this module's.
type Dirs map[string]string

// Modules are the other modules that mutants edit.
func Modules() []string { return []string{hashicorpRaft} }

const hashicorpRaft = "github.com/hashicorp/raft"

// errEdit means that the table does not match the sources.
var errEdit = errors.New("mutants: edit does not fit")

// Arguments writes edited copies of files to an empty directory, and returns the arguments with
// which go build uses them. Files of this module are overlaid one by one. A module of the cache is
// replaced by an edited copy, because go build does not overlay files there.
func Arguments(dir string, dirs Dirs, edits []Edit) ([]string, error) {
	copies := map[string]string{} // of modules, where they lie
	replace := map[string]string{}
	for _, e := range edits {
		from := filepath.Join(dirs[e.Module], filepath.FromSlash(e.File))
		to := replace[from]
		var err error
		switch {
		case e.Module != "":
			if copies[e.Module] == "" {
				copies[e.Module] = filepath.Join(dir, strings.ReplaceAll(e.Module, "/", "-"))
				err = copyModule(copies[e.Module], dirs[e.Module])
			}
			to = filepath.Join(copies[e.Module], filepath.FromSlash(e.File))
			from = to
		case to == "":
			to = filepath.Join(dir, strconv.Itoa(len(replace))+"-"+filepath.Base(from))
			replace[from] = to
		default: // another edit of the same file
			from = to
		}
		if err == nil {
			err = e.apply(from, to)
		}
		if err != nil {
			return nil, err
		}
	}
	overlay, err := overlayFile(dir, replace)
	if err != nil {
		return nil, err
	}
	args := []string{"-overlay=" + overlay}
	if len(copies) > 0 {
		modfile, err := modFile(dir, dirs[""], copies)
		if err != nil {
			return nil, err
		}
		args = append(args, "-modfile="+modfile)
	}
	return args, nil
}

// apply writes an edited file to another path, or to the same.
func (e *Edit) apply(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("%w: %w", errEdit, err)
	}
	if n := strings.Count(string(text), e.Old); n != 1 {
		return fmt.Errorf("%w: %s has the text %d times, want once:\n%s", errEdit, e.File, n, e.Old)
	}
	edited := strings.Replace(string(text), e.Old, e.New, 1)
	if edited == string(text) {
		return fmt.Errorf("%w: it does not change %s", errEdit, e.File)
	}
	if _, err := parser.ParseFile(token.NewFileSet(), to, edited, parser.SkipObjectResolution); err != nil {
		return fmt.Errorf("%w: %w", errEdit, err)
	}
	return os.WriteFile(to, []byte(edited), 0o600)
}

// copyModule copies the Go files of a module and its go.mod. The module cache is read-only.
func copyModule(to, from string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, below)
		if entry.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		if name := entry.Name(); name != "go.mod" && (!strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go")) {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, text, 0o600)
	})
}

// overlayFile writes the file that go build -overlay reads.
func overlayFile(dir string, replace map[string]string) (string, error) {
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	at := filepath.Join(dir, "overlay.json")
	return at, os.WriteFile(at, overlay, 0o600)
}

// modFile writes the file that go build -modfile reads, and the checksums beside it.
func modFile(dir, root string, copies map[string]string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return "", err
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		return "", err
	}
	for module, at := range copies {
		text = fmt.Appendf(text, "\nreplace %s => %s\n", module, at)
	}
	at := filepath.Join(dir, "go.mod")
	return at, errors.Join(os.WriteFile(at, text, 0o600), os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o600))
}
