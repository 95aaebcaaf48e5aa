package runlog_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestProseOwners wants each package of the modules once in the table of owners of ARCHITECTURE.md,
// with its rank, and no package there that is gone.
func TestProseOwners(t *testing.T) {
	owners, found := ownersOf(section(t, "Package owners"))
	for _, fault := range found {
		t.Error(fault)
	}
	pkgs, err := listPackages()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pkgs {
		if !slices.ContainsFunc(p.files, func(f goFile) bool { return !f.isTest() }) {
			continue
		}
		cell, ok := owners[p.path]
		switch _, rank, _ := room(p.path); {
		case !ok:
			t.Errorf("ARCHITECTURE.md: the table of owners lacks %s", p.path)
		case !hasRank(cell, rank):
			t.Errorf("ARCHITECTURE.md: %s has rank %d, and the table of owners says %q", p.path, rank, cell)
		}
	}
	for name := range owners {
		if files, err := filepath.Glob(name + "/*.go"); err != nil || len(files) == 0 {
			t.Errorf("ARCHITECTURE.md: the table of owners has %s, which is no package (%v)", name, err)
		}
	}
}

// ownersOf returns the packages of the table with the cells of their ranks. A name without a folder
// is in the folder of the one before.
func ownersOf(text string) (owners map[string]string, faults []string) {
	owners = map[string]string{}
	for _, cells := range tableRows(text) {
		folder := ""
		for _, m := range quoted.FindAllStringSubmatch(cells[1], -1) {
			name := m[1]
			if dir := path.Dir(name); dir != "." {
				folder = dir
			} else if folder != "" {
				name = path.Join(folder, name)
			}
			if _, twice := owners[name]; twice {
				faults = append(faults, "ARCHITECTURE.md: the table of owners has "+name+" twice")
			}
			owners[name] = cells[0]
		}
	}
	return owners, faults
}

// hasRank reports whether a cell such as "3, 5" or "1–3" has a rank.
func hasRank(cell string, rank int) bool {
	for part := range strings.SplitSeq(cell, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "–")
		if !isRange {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err == nil && err2 == nil && from <= rank && rank <= to {
			return true
		}
	}
	return false
}

// TestProseFunctions wants each function that the lives of ARCHITECTURE.md name as steps to be
// declared in a package that the row names.
func TestProseFunctions(t *testing.T) {
	for _, life := range []string{"One lease", "One signal", "One attestation", "One delivery"} {
		rows := tableRows(section(t, life))
		if len(rows) < 5 {
			t.Errorf("ARCHITECTURE.md: %s has %d steps", life, len(rows))
		}
		for _, cells := range rows {
			declared := map[string]bool{}
			for _, m := range quoted.FindAllStringSubmatch(cells[1], -1) {
				if err := declaredIn(m[1], declared); err != nil {
					t.Fatal(err)
				}
			}
			for _, m := range quoted.FindAllStringSubmatch(cells[0], -1) {
				if !declared[m[1]] {
					t.Errorf("ARCHITECTURE.md: %s names %s, which is not in %s", life, m[1], cells[1])
				}
			}
		}
	}
}

// declaredIn adds the functions of a package to names, and its methods with their types, also those
// of interfaces.
func declaredIn(dir string, names map[string]bool) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv == nil {
					names[n.Name.Name] = true
				} else if receiver := receiverOf(n); receiver != "" {
					names[receiver+"."+n.Name.Name] = true
				}
				return false
			case *ast.TypeSpec:
				if i, ok := n.Type.(*ast.InterfaceType); ok {
					for _, m := range i.Methods.List {
						for _, method := range m.Names {
							names[n.Name.Name+"."+method.Name] = true
						}
					}
				}
			}
			return true
		})
	}
	return nil
}

// receiverOf returns the type of a method's receiver.
func receiverOf(f *ast.FuncDecl) string {
	is := f.Recv.List[0].Type
	if star, ok := is.(*ast.StarExpr); ok {
		is = star.X
	}
	if name, ok := is.(*ast.Ident); ok {
		return name.Name
	}
	return ""
}

var quoted = regexp.MustCompile("`([^`]+)`")

// section returns a section of ARCHITECTURE.md.
func section(t *testing.T, heading string) string {
	t.Helper()
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("ARCHITECTURE.md has no section %q", heading)
	}
	body, _, _ := strings.Cut(rest, "\n## ")
	return body
}

// tableRows returns the cells of the rows of a table, which follow the line below its heading.
func tableRows(text string) (rows [][]string) {
	_, text, _ = strings.Cut(text, "\n|---")
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	return rows
}

// TestProsePackagesFail shows what the tables of packages are held to.
func TestProsePackagesFail(t *testing.T) {
	owners, faults := ownersOf("\n| rank | package | owns |\n|---|---|---|\n| 1–3 | `a/b`, `c`, `d/e` | x |\n| 4, 6 | `top`, `a/c` | y |\n")
	if len(faults) != 1 || len(owners) != 4 || owners["a/b"] != "1–3" || owners["top"] != "4, 6" {
		t.Errorf("%v %v", owners, faults)
	}
	for cell, want := range map[string]bool{"3": true, "1–3": true, "2, 3": true, "4": false, "–": false, "1, 5–7": false} {
		if hasRank(cell, 3) != want {
			t.Errorf("%q: want %v", cell, want)
		}
	}
	names := map[string]bool{}
	if err := declaredIn("storage/machine/queue", names); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"work.lease": true, "Lease": true, "Machine.Ended": true, "lease": false, "work.gone": false} {
		if names[name] != want {
			t.Errorf("%s: want %v", name, want)
		}
	}
	for _, pkg := range []string{"server/subscriptions/delivery", "server/queue"} {
		if err := declaredIn(pkg, names); err != nil {
			t.Fatal(err)
		}
	}
	if !names["Node.Execute"] || !names["Sink.Send"] {
		t.Error("the methods of interfaces are not found")
	}
}
