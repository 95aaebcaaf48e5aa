package runlog_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// soleImporters lists packages that are a part of another one: it may import them, and so may the
// packages below its folder internal.
var soleImporters = map[string]string{
	"storage/internal/directory": "storage",
	"storage/internal/files":     "storage",
	"storage/internal/keys":      "storage",
	"storage/internal/overlay":   "storage",
	"storage/internal/read":      "storage",
	"storage/internal/record":    "storage",
	"storage/internal/rowcache":  "storage",
	"storage/internal/stream":    "storage",
}

// alsoImporters lists packages beside the folder internal of a sole importer that may import what
// it may: they are parts of it that not every program links.
var alsoImporters = map[string]string{"storage/bulk": "storage"}

// noNames lists the names that say nothing about what a package is for.
var noNames = []string{"common", "util", "utils", "type", "types", "constant", "constants", "helper", "helpers"}

const (
	module        = "runlog"
	hashicorpRaft = "github.com/hashicorp/raft"
)

// modules are the folders of the modules whose packages these rules are about: the products and
// what they share. Modules of tools, of adapters of other engines, and of examples have what they
// need besides.
var modules = []string{".", "proto", "testbed", "client", "client/observe", "client/clienttest", "engine"}

// goPackage is what the rules need to know of a package.
type goPackage struct {
	path  string // Below the module; "." is the root.
	name  string
	files []goFile
}

type goFile struct {
	name    string
	imports []goImport
}

type goImport struct {
	name string // As the file renames it, or empty.
	path string
}

func (f goFile) isTest() bool { return strings.HasSuffix(f.name, "_test.go") }

// TestImportTable holds the module to the rules of CONTRIBUTING.md: which package may import which,
// and what packages are called.
func TestImportTable(t *testing.T) {
	pkgs, err := listPackages()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range violations(pkgs) {
		t.Error(v)
	}
}

// serverSide is what no program links that imports the client: beside it the program has room for
// its own code.
var serverSide = []string{
	module + "/server", module + "/storage", module + "/raft", module + "/projector",
	hashicorpRaft, "github.com/cockroachdb/pebble",
}

// TestClientIsLight holds the client, the engines and the packages below them, but for test kits,
// to what they import themselves and through others.
func TestClientIsLight(t *testing.T) {
	below := func(pkg string) string { return strings.TrimPrefix(pkg, module+"/") }
	for _, dir := range []string{"client", "engine"} {
		checked := slices.DeleteFunc(goList(t, dir, "./..."), func(pkg string) bool { return isKit(below(pkg)) })
		if len(checked) == 0 {
			t.Fatalf("there is no %s: the test proves nothing", dir)
		}
		for _, fault := range heavy(goList(t, dir, append([]string{"-deps"}, checked...)...)) {
			t.Errorf("%s: %s", dir, fault)
		}
	}
	if len(heavy(goList(t, "client/clienttest", "-deps", "."))) == 0 {
		t.Error("nothing is found in the test kit of the client, which starts servers")
	}
}

// benchSide is what only the load generator links, the program runlog-bench: no node needs it.
var benchSide = []string{module + "/bench", module + "/storage/bulk"}

// TestProductIsLight holds the program runlog to what a node and its users need. It links no
// engine, so that no caller can have a node execute steps (SEC-1).
func TestProductIsLight(t *testing.T) {
	linked := func(program string, dirs ...string) []string {
		return slices.DeleteFunc(goList(t, ".", "-deps", program), func(pkg string) bool {
			return !slices.ContainsFunc(dirs, func(dir string) bool { return within(pkg, dir) })
		})
	}
	for _, pkg := range linked("./cmd/runlog", append(benchSide, module+"/engine")...) {
		t.Error("runlog links " + pkg + ": it belongs to the load generator, or to the engines")
	}
	if len(linked("./cmd/runlog-bench", benchSide...)) < len(benchSide) {
		t.Error("nothing is found in the load generator: the test proves nothing")
	}
}

// goList returns the packages that go list prints in a module.
func goList(t *testing.T, dir string, args ...string) []string {
	t.Helper()
	out, err := exec.Command("go", append([]string{"-C", dir, "list"}, args...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}

// heavy returns a line for each package that is of the server's side.
func heavy(deps []string) (faults []string) {
	for _, pkg := range deps {
		if slices.ContainsFunc(serverSide, func(dir string) bool { return within(pkg, dir) }) {
			faults = append(faults, pkg+" is among what it imports: a client has nothing of the server")
		}
	}
	return faults
}

// violations checks every package against the rules and says, one line a fault, what breaks them.
func violations(pkgs []goPackage) []string {
	var out []string
	for _, p := range pkgs {
		for _, fault := range slices.Concat(checkName(p), checkRank(p), checkKits(p), checkTesting(p), checkRaft(p), checkSole(p)) {
			out = append(out, p.path+": "+fault)
		}
	}
	return out
}

// checkName wants a noun that says what the package is for.
func checkName(p goPackage) []string {
	elements := append(strings.Split(p.path, "/"), strings.TrimSuffix(p.name, "_test"))
	for _, e := range elements {
		if slices.Contains(noNames, e) {
			return []string{fmt.Sprintf("%q says nothing about a package's job: name it after what it does", e)}
		}
	}
	return nil
}

// checkRank wants a rank for every package, and imports of lower ranks alone. A package directly
// below server needs a rank of its own: services do not import each other. Within a room a
// package may import those below its own folder, and a test kit anything of its room and of the
// rooms below that. Tests are free.
func checkRank(p goPackage) []string {
	if len(productionImports(p)) == 0 && p.path == "." {
		return nil
	}
	home, rank, ok := room(p.path)
	if !ok || path.Dir(p.path) == "server" && home != p.path {
		return []string{"has no rank: add it to the table in arch_ranks_test.go"}
	}
	var out []string
	for _, to := range productionImports(p) {
		target, inModule := strings.CutPrefix(to, module+"/")
		if _, guarded := soleImporters[target]; guarded || !inModule {
			continue // checkSole's.
		}
		targetHome, targetRank, ok := room(target)
		if !ok {
			continue // Reported for the target itself.
		}
		below := strings.HasPrefix(target, p.path+"/")
		kit := isKit(p.path) && (within(targetHome, home) || isKit(target))
		if targetRank < rank || targetRank == rank && below || kit && (targetRank == rank || within(targetHome, home)) {
			continue
		}
		out = append(out, fmt.Sprintf("rank %d imports %s of rank %d: only lower ranks may be imported", rank, target, targetRank))
	}
	return out
}

// checkKits keeps test kits out of production code.
func checkKits(p goPackage) []string {
	if isKit(p.path) {
		return nil
	}
	var out []string
	for _, to := range productionImports(p) {
		if target, ok := strings.CutPrefix(to, module+"/"); ok && isKit(target) {
			out = append(out, fmt.Sprintf("imports the test kit %s outside of tests", target))
		}
	}
	return out
}

// testLibraries are what the program never links; so are the packages under them.
var testLibraries = []string{
	"testing", "pgregory.net/rapid", "github.com/anishathalye/porcupine",
	"github.com/nats-io/nats-server", "github.com/nats-io/jwt", "github.com/twmb/franz-go/pkg/kfake", "github.com/cloudevents/sdk-go",
	"github.com/standard-webhooks/standard-webhooks",
}

// checkTesting keeps the package testing, and the libraries of tests, out of production code.
func checkTesting(p goPackage) []string {
	if isKit(p.path) {
		return nil
	}
	var out []string
	for _, to := range productionImports(p) {
		if slices.ContainsFunc(testLibraries, func(library string) bool { return within(to, library) }) {
			out = append(out, fmt.Sprintf("imports %s outside of tests", to))
		}
	}
	return out
}

// checkRaft keeps hashicorp's Raft, its log and whatever else belongs to it within the room raft,
// where the name raft is ours and theirs is hraft. It holds for tests too.
func checkRaft(p goPackage) []string {
	var out []string
	for _, f := range p.files {
		for _, imp := range f.imports {
			if !strings.HasPrefix(imp.path, hashicorpRaft) {
				continue
			}
			if !within(p.path, "raft") {
				out = append(out, fmt.Sprintf("%s imports %s: only raft may", f.name, imp.path))
			}
			if imp.path == hashicorpRaft && imp.name != "hraft" {
				out = append(out, fmt.Sprintf("%s imports %s as %q: call it hraft", f.name, imp.path, imp.name))
			}
		}
	}
	return out
}

// checkSole guards the packages that are a part of another one. It holds for tests too, but for the
// package's own.
func checkSole(p goPackage) []string {
	var out []string
	for _, f := range p.files {
		for _, imp := range f.imports {
			target := strings.TrimPrefix(imp.path, module+"/")
			importer, guarded := soleImporters[target]
			if guarded && p.path != importer && p.path != target && !within(p.path, importer+"/internal") && alsoImporters[p.path] != importer {
				out = append(out, fmt.Sprintf("%s imports %s: only %s and what is below %[3]s/internal may", f.name, target, importer))
			}
		}
	}
	return out
}

// room returns the listed package that pkg is or lies below, and its rank.
func room(pkg string) (home string, rank int, ok bool) {
	for dir := pkg; dir != "."; dir = path.Dir(dir) {
		if rank, ok := ranks[dir]; ok {
			return dir, rank, true
		}
	}
	return "", 0, false
}

// isKit reports whether pkg helps tests, as net/http/httptest does: it is called after its parent
// and "test", or lies below such a package or below testbed.
func isKit(pkg string) bool {
	if within(pkg, "testbed") {
		return true
	}
	for dir := pkg; dir != "."; dir = path.Dir(dir) {
		if path.Base(dir) == path.Base(path.Dir(dir))+"test" {
			return true
		}
	}
	return false
}

func within(pkg, dir string) bool {
	return pkg == dir || strings.HasPrefix(pkg, dir+"/")
}

func productionImports(p goPackage) []string {
	var out []string
	for _, f := range p.files {
		if f.isTest() {
			continue
		}
		for _, imp := range f.imports {
			out = append(out, imp.path)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// listPackages reads the packages of the modules with go list, and the imports of all their files,
// those that this platform does not build included.
func listPackages() (all []goPackage, err error) {
	for _, dir := range modules {
		pkgs, err := packagesOf(dir)
		if err != nil {
			return nil, fmt.Errorf("module %s: %w", dir, err)
		}
		all = append(all, pkgs...)
	}
	return all, nil
}

func packagesOf(dir string) ([]goPackage, error) {
	var stderr bytes.Buffer
	cmd := exec.Command("go", "-C", dir, "list", "-e", "-json=Dir,Name,ImportPath,GoFiles,CgoFiles,IgnoredGoFiles,TestGoFiles,XTestGoFiles", "./...")
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.Bytes())
	}
	var pkgs []goPackage
	for dec := json.NewDecoder(bytes.NewReader(stdout)); ; {
		var l struct {
			Dir, Name, ImportPath                                        string
			GoFiles, CgoFiles, IgnoredGoFiles, TestGoFiles, XTestGoFiles []string
		}
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			return pkgs, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		p := goPackage{path: ".", name: l.Name}
		if below, ok := strings.CutPrefix(l.ImportPath, module+"/"); ok {
			p.path = below
		}
		for _, name := range slices.Concat(l.GoFiles, l.CgoFiles, l.IgnoredGoFiles, l.TestGoFiles, l.XTestGoFiles) {
			f, err := parseImports(filepath.Join(l.Dir, name))
			if err != nil {
				return nil, err
			}
			p.files = append(p.files, f)
		}
		pkgs = append(pkgs, p)
	}
}

func parseImports(file string) (goFile, error) {
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		return goFile{}, err
	}
	f := goFile{name: filepath.Base(file)}
	for _, spec := range tree.Imports {
		to, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return goFile{}, fmt.Errorf("%s: %w", file, err)
		}
		imp := goImport{path: to}
		if spec.Name != nil {
			imp.name = spec.Name.Name
		}
		f.imports = append(f.imports, imp)
	}
	return f, nil
}

// TestImportTableFails shows that each rule can fail, and what it lets through.
func TestImportTableFails(t *testing.T) {
	// pkg is a package with one file; an import may be written "name path".
	pkg := func(at, file string, imports ...string) goPackage {
		f := goFile{name: file}
		for _, s := range imports {
			name, to, renamed := strings.Cut(s, " ")
			if !renamed {
				name, to = "", s
			}
			f.imports = append(f.imports, goImport{name: name, path: to})
		}
		return goPackage{path: at, name: path.Base(at), files: []goFile{f}}
	}
	tests := []struct {
		name string
		pkg  goPackage
		want string // Part of the one fault; empty means none.
	}{
		{"lower rank", pkg("server", "a.go", "runlog/server/replica/batch", "runlog/storage", "runlog/proto/runlog/v1", "net/http"), ""},
		{"higher rank", pkg("storage", "a.go", "runlog/raft"), "rank 2 imports raft of rank 3"},
		{"same rank, other room", pkg("raft", "a.go", "runlog/storage/backup"), "rank 3 imports storage/backup of rank 3"},
		{"parent of a higher rank", pkg("server/rpc", "a.go", "runlog/server"), "rank 5 imports server of rank 7"},
		{"own sub-package", pkg("projector", "a.go", "runlog/projector/internal/fold"), ""},
		{"sub-package to its parent", pkg("projector/internal/fold", "a.go", "runlog/projector"), "rank 4 imports projector of rank 4"},
		{"sub-package of a lower rank", pkg("projector/list", "a.go", "runlog/projector/run"), ""},
		{"sub-package beside it", pkg("projector/watch", "a.go", "runlog/projector/list"), "rank 4 imports projector/list of rank 4"},
		{"sub-package has its parent's rank", pkg("storage/checkpoint", "a.go", "runlog/raft"), "rank 2 imports raft of rank 3"},
		{"bench to client", pkg("bench", "a.go", "runlog/client", "runlog/proto/runlog/v1"), ""},
		{"test to a higher rank", pkg("storage", "a_test.go", "runlog/server", "testing"), ""},
		{"unknown package", pkg("queue", "a.go", "runlog/storage"), "has no rank"},
		{"unknown package under server", pkg("server/billing", "a.go", "runlog/storage"), "has no rank"},
		{"unknown package under proto", pkg("proto/event/v1", "a.go"), "has no rank"},
		{"root with tests alone", pkg(".", "arch_test.go", "testing"), ""},
		{"root with code", pkg(".", "a.go", "runlog/storage"), "has no rank"},

		{"keys by storage", pkg("storage", "a.go", "runlog/storage/internal/keys"), ""},
		{"keys by their own test", pkg("storage/internal/keys", "a_test.go", "runlog/storage/internal/keys"), ""},
		{"keys by a part of storage", pkg("storage/internal/record", "a.go", "runlog/storage/internal/keys"), ""},
		{"keys by a test of a part", pkg("storage/internal/record", "a_test.go", "runlog/storage/internal/keys"), ""},
		{"keys by a kit", pkg("storage/storagetest", "a.go", "runlog/storage/internal/keys"), "only storage and what is below storage/internal may"},
		{"record by a package beside the parts", pkg("storage/backup", "a.go", "runlog/storage/internal/record"), "only storage and what is below storage/internal may"},
		{"record by a test beside the parts", pkg("storage/backup", "a_test.go", "runlog/storage/internal/record"), "only storage and what is below storage/internal may"},
		{"record by bulk", pkg("storage/bulk", "a.go", "runlog/storage", "runlog/storage/internal/record"), ""},
		{"record by a folder that looks like one", pkg("storage/internals", "a.go", "runlog/storage/internal/record"), "only storage and what is below storage/internal may"},

		{"kit by a test", pkg("raft", "a_test.go", "runlog/raft/rafttest", "runlog/storage/storagetest"), ""},
		{"kit by a kit", pkg("server/servertest/sim", "a.go", "runlog/raft", "runlog/server/servertest/procs", "runlog/storage/storagetest", "testing"), ""},
		{"kit by production code", pkg("raft", "a.go", "runlog/storage/storagetest"), "test kit storage/storagetest"},
		{"client's kit", pkg("client/clienttest", "a.go", "runlog/client", "runlog/server", "runlog/proto/contract", "testing"), ""},
		{"client to the server", pkg("client", "a.go", "runlog/server"), "rank 2 imports server of rank 7"},
		{"kit of a higher room", pkg("storage/storagetest", "a.go", "runlog/raft"), "rank 2 imports raft of rank 3"},
		{"testing by production code", pkg("client", "a.go", "testing"), "imports testing outside"},
		{"testing/fstest by production code", pkg("client", "a.go", "testing/fstest"), "imports testing/fstest outside"},
		{"porcupine by a kit", pkg("server/servertest/history", "a.go", "github.com/anishathalye/porcupine"), ""},
		{"porcupine by production code", pkg("client", "a.go", "github.com/anishathalye/porcupine"), "imports github.com/anishathalye/porcupine outside"},

		{"hraft in raft", pkg("raft", "a.go", "hraft github.com/hashicorp/raft", "github.com/hashicorp/raft-wal/types"), ""},
		{"hraft in its kit", pkg("raft/rafttest", "a.go", "hraft github.com/hashicorp/raft"), ""},
		{"raft by its own name", pkg("raft", "a.go", "github.com/hashicorp/raft"), `as ""`},
		{"raft by another name", pkg("raft", "a_test.go", "hc github.com/hashicorp/raft"), `as "hc"`},
		{"hraft elsewhere", pkg("server", "a.go", "hraft github.com/hashicorp/raft"), "only raft may"},
		{"hraft in a test elsewhere", pkg("server", "a_test.go", "hraft github.com/hashicorp/raft"), "only raft may"},
		{"raft-wal elsewhere", pkg("storage", "a.go", "wal github.com/hashicorp/raft-wal"), "only raft may"},

		{"name in the path", pkg("server/util/ring", "a.go"), `"util" says nothing`},
		{"name of the package", goPackage{path: "server/rpc/errs", name: "common"}, `"common" says nothing`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := violations([]goPackage{tt.pkg})
			switch {
			case tt.want == "" && len(got) != 0:
				t.Errorf("want no fault, got %q", got)
			case tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)):
				t.Errorf("want one fault that says %q, got %q", tt.want, got)
			}
		})
	}
}
