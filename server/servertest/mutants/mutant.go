package mutants

import (
	"encoding/json"
	"errors"
	"fmt"
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
	// Held: the worlds of the trial are made from backups, and held.
	Held bool
	// Package is where Test looks for it in place of the simulator, which does not use it: a folder
	// of this module. Empty: the simulator.
	Package string
	// Test is the test of Package. It draws its cases afresh every time, or has all that matter.
	Test string
}

// Dirs maps modules to their directories, and the empty path to this module's.
type Dirs map[string]string

// Modules are the other modules that mutants edit.
func Modules() []string { return []string{hashicorpRaft} }

const hashicorpRaft = "github.com/hashicorp/raft"

// Arguments makes edits, and returns the arguments with which go build uses them. It writes the
// edited files to an empty directory. Files of this module are overlaid one by one. A module of the
// cache is replaced by an edited copy, because go build does not overlay files there.
func Arguments(dir string, dirs Dirs, edits []Edit) ([]string, error) {
	edited := sources{}
	copies := map[string]string{} // of modules, where they lie
	for i := range edits {
		module, folder := dirs.locate(edits[i].Package)
		if err := edited.apply(folder, &edits[i]); err != nil {
			return nil, err
		}
		if module != "" && copies[module] == "" {
			copies[module] = filepath.Join(dir, strings.ReplaceAll(module, "/", "-"))
			if err := copyModule(copies[module], dirs[module]); err != nil {
				return nil, err
			}
		}
	}
	replace := map[string]string{}
	for from, text := range edited {
		to := ""
		for module, at := range copies {
			if below, ok := strings.CutPrefix(from, dirs[module]); ok {
				to = filepath.Join(at, below)
			}
		}
		if to == "" {
			to = filepath.Join(dir, strconv.Itoa(len(replace))+"-"+filepath.Base(from))
			replace[from] = to
		}
		if err := os.WriteFile(to, text, 0o600); err != nil {
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

// locate returns the module of a package, and the package's folder.
func (d Dirs) locate(pkg string) (module, folder string) {
	for module, dir := range d {
		if below, ok := strings.CutPrefix(pkg+"/", module+"/"); ok && module != "" {
			return module, filepath.Join(dir, filepath.FromSlash(below))
		}
	}
	return "", filepath.Join(d[""], filepath.FromSlash(pkg))
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

// modFile writes the file that go build -modfile reads, and the checksums next to it.
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
