package runlog_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

// TestModuleVersions: the modules of this repository are tested with the versions that their users
// get. So each of their dependencies has the same version in all of them.
func TestModuleVersions(t *testing.T) {
	versions := map[string]map[string][]string{} // by dependency and version, the modules
	for _, dir := range modules {
		for _, r := range goMod(t, filepath.Join(dir, "go.mod")).Require {
			if versions[r.Mod.Path] == nil {
				versions[r.Mod.Path] = map[string][]string{}
			}
			versions[r.Mod.Path][r.Mod.Version] = append(versions[r.Mod.Path][r.Mod.Version], dir)
		}
	}
	for dependency, by := range versions {
		if len(by) > 1 {
			t.Errorf("%s has several versions: %v; go get the newest one in each module", dependency, by)
		}
	}
}

func goMod(t *testing.T, path string) *modfile.File {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	file, err := modfile.Parse(path, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// serverModules begin the paths of modules that a server needs and a client does not.
var serverModules = []string{
	"github.com/cockroachdb/", hashicorpRaft, "github.com/nats-io/", "github.com/twmb/franz-go", "github.com/getsentry/",
	"github.com/prometheus/", "go.opentelemetry.io/",
}

// maxGoMod bounds the lines of the go.mod of an outside engine.
const maxGoMod = 30

// outside returns a module elsewhere with a program, and what it finds in this repository. It asks
// no network.
func outside(t *testing.T, program string, ours ...string) (dir string, run func(args ...string) (string, error)) {
	t.Helper()
	dir = t.TempDir()
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	text := "module example.com/outside\n\ngo 1.26.0\n\nreplace (\n"
	for _, m := range ours {
		text += "\t" + m + " => " + filepath.Join(here, strings.TrimPrefix(m, module)) + "\n"
	}
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"go.mod": text + ")\n", "main.go": program, "go.sum": string(sums)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, func(args ...string) (string, error) {
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "GOPROXY=off", "CGO_ENABLED=0")
		said, err := cmd.CombinedOutput()
		return string(said), err
	}
}

// TestOutsideEngine: the module of an engine that imports all of the client depends on nothing of
// the server, and its go.mod is short.
func TestOutsideEngine(t *testing.T) {
	const program = `package main

import (
	"runlog/client"
	_ "runlog/client/consumer"
	_ "runlog/client/contexts"
	_ "runlog/client/events"
	_ "runlog/client/outbox"
	_ "runlog/client/watcher"
	_ "runlog/client/writer"
	_ "runlog/proto/runlog/v1"
)

func main() { _, _ = client.Dial("localhost", client.Options{}) }
`
	dir, run := outside(t, program, "runlog/client", "runlog/proto", "runlog/testbed")
	if said, err := run("mod", "tidy"); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if said, err := run("build", "-o", os.DevNull, "."); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	file := goMod(t, filepath.Join(dir, "go.mod"))
	for _, r := range file.Require {
		if slices.ContainsFunc(serverModules, func(prefix string) bool { return strings.HasPrefix(r.Mod.Path, prefix) }) {
			t.Errorf("the client needs %s: it belongs to the server", r.Mod)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\n"); n > maxGoMod {
		t.Errorf("the go.mod has %d lines, want at most %d:\n%s", n, maxGoMod, text)
	}
}

// TestOutsideTests: a module whose tests start servers needs the module of the server, and is built
// with it. Without the kit's module, go names what is missing.
func TestOutsideTests(t *testing.T) {
	const program = `package main

import "runlog/client/clienttest"

func main() { _ = clienttest.InBubble }
`
	ours := []string{"runlog", "runlog/client", "runlog/client/clienttest", "runlog/proto", "runlog/testbed"}
	_, run := outside(t, program, ours...)
	if said, err := run("mod", "tidy"); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if said, err := run("vet", "."); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
	_, run = outside(t, program, "runlog/client", "runlog/proto", "runlog/testbed")
	if said, err := run("mod", "tidy"); err == nil || !strings.Contains(said, "runlog/client/clienttest") {
		t.Errorf("without the module of the kit: %v\n%s", err, said)
	}
}

// TestModulesOfProducts: what each product's module needs of the others. The client needs nothing
// of the server, and the server nothing of the engines.
func TestModulesOfProducts(t *testing.T) {
	want := map[string][]string{
		"testbed": nil, "proto": {"runlog/testbed"}, "client": {"runlog/proto", "runlog/testbed"},
		".": {"runlog/client", "runlog/proto", "runlog/testbed"},
	}
	for _, dir := range slices.Sorted(maps.Keys(want)) {
		var has []string
		for _, r := range goMod(t, filepath.Join(dir, "go.mod")).Require {
			if within(r.Mod.Path, module) {
				has = append(has, r.Mod.Path)
			}
		}
		slices.Sort(has)
		if !slices.Equal(has, want[dir]) {
			t.Errorf("the module in %s needs %v, want %v", dir, has, want[dir])
		}
	}
}
