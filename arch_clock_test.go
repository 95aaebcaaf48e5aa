package runlog_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// maxRealTime bounds how many functions may depend on the real clock, see realTime.
const maxRealTime = 40

// TestClock holds all tests to fake time. Outside of a bubble, a test does not sleep, does not ask
// again and again, and has no upper bound on time: on a busy machine each of these fails a product
// that works. It takes no port by number, draws from a seed that is printed, and does not count
// goroutines. realTime lists the functions that may, each with its reason.
func TestClock(t *testing.T) {
	found, err := clockUses()
	if err != nil {
		t.Fatal(err)
	}
	for name, uses := range found {
		if realTime[name] != "" {
			continue
		}
		for _, u := range uses {
			t.Errorf("%s: %s %s%s", u.at, name, u.remedy(), u.by)
		}
	}
	for name := range realTime {
		if _, uses := found[name]; !uses {
			t.Errorf("realTime: no test calls %s any more: remove its exception", name)
		}
	}
	if n := len(realTime); n > maxRealTime {
		t.Errorf("realTime has %d exceptions, at most %d", n, maxRealTime)
	}
}

// clockUse is what a function does outside of a bubble that depends on the machine.
type clockUse struct {
	at, what string
	by       string // The functions from a test to this one.
}

func (u clockUse) remedy() string {
	switch u.what {
	case "rand":
		return "draws from the global source: use testbed/seed, which prints the seed"
	case "port":
		return "listens on a port by number: use port 0, and hand the listener over"
	case "runtime.NumGoroutine":
		return "counts goroutines: a bubble finds those that are left, by their stacks"
	case "time.Since":
		return "has an upper bound on real time: prove it in a bubble (testbed/bubble)"
	default:
		return u.what + " in real time: run the test in a bubble (testbed/bubble), or wait for an event (testbed/await)"
	}
}

// asks is the one place that asks again and again in real time.
const asks = "testbed/await"

// fakeOnly are kits that run in bubbles alone.
var fakeOnly = []string{"testbed/bubble", "testbed/bubble/property", "testbed/network", "testbed/seed", "server/servertest/sim", "server/servertest/workload", "server/servertest/workload/bus"}

// others are the modules whose tests drive servers of others as processes. Those signal nothing:
// the tests ask them, and let moments pass in which nothing may happen. All else is refused there
// too.
var others = []string{"engine/temporal", "engine/conductor/sdkcheck"}

// ofOthers reports whether a use is one of those that the tests of others need.
func ofOthers(dir string, u clockUse) bool {
	asks := u.what == "time.Sleep" || u.what == "time.After" || u.what == "await.Poll"
	return asks && slices.ContainsFunc(others, func(m string) bool { return dir == m || strings.HasPrefix(dir, m+"/") })
}

// sharedKits are kits whose functions run in the time of their callers. They are judged with each
// folder whose tests import them.
var sharedKits = []string{"server/servertest"}

// bubbles are the functions whose arguments run in fake time.
var bubbles = []string{"synctest.Test", "bubble.Test", "bubble.Run", "property.Check", "bubble.Until", "rapid.SyncTest"}

// waits are the functions that make a test depend on the real clock.
var waits = []string{
	"time.Sleep", "time.After", "time.Tick", "time.NewTimer", "time.NewTicker", "time.AfterFunc", "await.Poll", "runtime.NumGoroutine",
}

// sources make a source of draws that has a seed of its own, or are of crypto/rand.
var sources = []string{"New", "NewPCG", "NewChaCha8", "NewSource", "NewZipf", "Read", "Text", "Prime"}

// clockUses returns what the functions of all tests and kits do in real time, by folder and name,
// those of the modules below this one too.
func clockUses() (map[string][]clockUse, error) {
	list, err := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "--", "*.go").Output()
	if err != nil {
		return nil, err
	}
	folders := map[string][]string{}
	for name := range strings.Lines(string(list)) {
		name = strings.TrimSuffix(name, "\n")
		dir := path.Dir(name)
		if dir == asks {
			continue
		}
		if strings.HasSuffix(name, "_test.go") || isKit(dir) && !slices.Contains(fakeOnly, dir) {
			folders[dir] = append(folders[dir], name)
		}
	}
	kits := map[string][]string{}
	for _, kit := range sharedKits {
		isTest := func(name string) bool { return strings.HasSuffix(name, "_test.go") }
		kits[kit] = slices.DeleteFunc(slices.Clone(folders[kit]), isTest)
		folders[kit] = slices.DeleteFunc(folders[kit], func(name string) bool { return !isTest(name) })
	}
	found := map[string][]clockUse{}
	for dir, names := range folders {
		tests := newTests()
		if err := tests.parse(dir, names); err != nil {
			return nil, err
		}
		for kit, names := range kits {
			if tests.imports(kit) {
				if err := tests.parse(kit, names); err != nil {
					return nil, err
				}
			}
		}
		tests.read(isKit(dir))
		for name, uses := range tests.inRealTime() {
			found[name] = slices.DeleteFunc(uses, func(u clockUse) bool { return ofOthers(dir, u) })
		}
	}
	return found, nil
}

// parse adds the files of a folder that are not deleted.
func (x *tests) parse(dir string, names []string) error {
	for _, name := range names {
		text, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			continue // Deleted, and not yet in the index.
		}
		if err != nil {
			return err
		}
		tree, err := parser.ParseFile(x.files, name, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		x.trees = append(x.trees, folderFile{dir, tree})
	}
	return nil
}

// imports reports whether a file imports a package.
func (x *tests) imports(pkg string) bool {
	return slices.ContainsFunc(x.trees, func(f folderFile) bool {
		return slices.ContainsFunc(f.tree.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == strconv.Quote(module+"/"+pkg) })
	})
}

// tests are the functions of one folder's tests, or of a kit, with those of the shared kits that
// they import.
type tests struct {
	files *token.FileSet
	trees []folderFile
	enter map[string]bool      // What runs its arguments in a bubble, by name.
	funcs map[string]*testFunc // By folder, name, and before that the type of a method.
	named map[string][]*testFunc
	roots []*testFunc
	// packages are the names in the file that is read that stand for packages without methods of
	// kits.
	packages map[string]bool
}

type folderFile struct {
	dir  string
	tree *ast.File
}

// testFunc is what a function does outside of bubbles.
type testFunc struct {
	name     string
	mentions map[string]bool
	uses     []clockUse
	excepted bool
}

func newTests() *tests {
	x := &tests{files: token.NewFileSet(), enter: map[string]bool{}, funcs: map[string]*testFunc{}, named: map[string][]*testFunc{}}
	for _, name := range bubbles {
		x.enter[name] = true
	}
	return x
}

// read reads the trees. All that a kit exports may be called in real time.
func (x *tests) read(kit bool) {
	var decls []ast.Decl
	for _, f := range x.trees {
		decls = append(decls, f.tree.Decls...)
	}
	x.findBubbles(decls)
	for _, f := range x.trees {
		isTest := strings.HasSuffix(x.files.Position(f.tree.Pos()).Filename, "_test.go")
		shared := !isTest && slices.Contains(sharedKits, f.dir)
		x.packages = waitless(f.tree.Imports)
		for _, d := range f.tree.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Body == nil {
					break
				}
				mentioned := mentionsOf(d.Name.Name, shared)
				if d.Recv != nil {
					mentioned = []string{"." + d.Name.Name}
				}
				added := x.add(f.dir+"."+receiver(d)+d.Name.Name, d, mentioned)
				if !shared && isRoot(d, kit && !isTest) {
					x.roots = append(x.roots, added)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok {
						for _, name := range v.Names {
							x.add(f.dir+"."+name.Name, v, mentionsOf(name.Name, shared))
						}
					}
				}
			}
		}
	}
}

// waitless returns the names of the imports that are of the standard library or of testbed: their
// functions are judged by name, and are no methods of a kit.
func waitless(imports []*ast.ImportSpec) map[string]bool {
	names := map[string]bool{}
	for _, i := range imports {
		from, _ := strconv.Unquote(i.Path.Value)
		first, _, _ := strings.Cut(from, "/")
		if i.Name == nil && (strings.HasPrefix(from, module+"/testbed/") || first != module && !strings.Contains(first, ".")) {
			names[path.Base(from)] = true
		}
	}
	return names
}

// mentionsOf returns how functions mention a name. Those of a shared kit that are not in it have
// its package before the name.
func mentionsOf(name string, shared bool) []string {
	if shared {
		return []string{name, "." + name}
	}
	return []string{name}
}

// add notes what a declaration does, and that mentions are of it.
func (x *tests) add(name string, d ast.Node, mentioned []string) *testFunc {
	f := x.funcs[name]
	if f == nil {
		f = &testFunc{name: name, mentions: map[string]bool{}, excepted: realTime[name] != ""}
		x.funcs[name] = f
		for _, m := range mentioned {
			x.named[m] = append(x.named[m], f)
		}
	}
	x.walk(f, d) // Once more for another platform's.
	return f
}

// findBubbles finds the functions that call what they are given in a bubble alone.
func (x *tests) findBubbles(decls []ast.Decl) {
	for before := -1; before != len(x.enter); {
		before = len(x.enter)
		for _, d := range decls {
			if decl, ok := d.(*ast.FuncDecl); ok && decl.Body != nil && x.runsInBubble(decl) {
				x.enter[decl.Name.Name] = true
			}
		}
	}
}

// runsInBubble reports whether a function mentions a parameter that is a function, and does so in
// bubbles only.
func (x *tests) runsInBubble(decl *ast.FuncDecl) bool {
	given := map[string]bool{}
	for _, p := range decl.Type.Params.List {
		if _, ok := p.Type.(*ast.FuncType); ok {
			for _, name := range p.Names {
				given[name.Name] = true
			}
		}
	}
	inside, outside := false, false
	ast.Inspect(decl.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if x.enters(dotted(n.Fun)) {
				ast.Inspect(n, func(n ast.Node) bool {
					name, ok := n.(*ast.Ident)
					inside = inside || ok && given[name.Name]
					return true
				})
				return false
			}
		case *ast.Ident:
			outside = outside || given[n.Name]
		}
		return true
	})
	return inside && !outside
}

// enters reports whether a call runs its arguments in a bubble.
func (x *tests) enters(called string) bool {
	return x.enter[called] || x.enter[called[strings.LastIndexByte(called, '.')+1:]]
}

// isRoot reports whether a function begins in real time. Benchmarks are no tests.
func isRoot(decl *ast.FuncDecl, kit bool) bool {
	name := decl.Name.Name
	if kit {
		return decl.Name.IsExported()
	}
	return decl.Recv == nil && (name == "init" || slices.ContainsFunc([]string{"Test", "Fuzz", "Example"}, func(p string) bool { return strings.HasPrefix(name, p) }))
}

// receiver returns the type of a method with a point after it.
func receiver(decl *ast.FuncDecl) string {
	if decl.Recv == nil {
		return ""
	}
	t := decl.Recv.List[0].Type
	for {
		switch of := t.(type) {
		case *ast.StarExpr:
			t = of.X
		case *ast.IndexExpr:
			t = of.X
		case *ast.Ident:
			return of.Name + "."
		default:
			return ""
		}
	}
}

// walk notes what a declaration mentions and does, but for what it lets run in a bubble. In a
// function that enters a bubble, a function that is kept in a variable or a table is for the
// bubble.
func (x *tests) walk(f *testFunc, d ast.Node) {
	note := func(n ast.Node, what string) {
		f.uses = append(f.uses, clockUse{at: x.files.Position(n.Pos()).String(), what: what})
	}
	elapsed := map[string]bool{}  // Variables that hold a time.Since.
	called := map[ast.Expr]bool{} // Functions that are called, and arguments of calls.
	entersOne := false
	ast.Inspect(d, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		entersOne = entersOne || ok && x.enters(dotted(call.Fun))
		return !entersOne
	})
	var walk func(n ast.Node) bool
	walk = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return !entersOne || called[n]
		case *ast.CallExpr:
			called[n.Fun] = true
			for _, arg := range n.Args {
				called[arg] = true
			}
			name := dotted(n.Fun)
			switch {
			case x.enters(name):
				return false
			case slices.Contains(waits, name):
				note(n, name)
			case name == "time.Now().After" || name == "time.Now().Before":
				note(n, "a loop with a deadline")
			case name == "net.Listen" && !isFreePort(n.Args[1]):
				note(n, "port")
			default:
				if draws, ok := strings.CutPrefix(name, "rand."); ok && !strings.Contains(draws, ".") && !slices.Contains(sources, draws) {
					note(n, "rand")
				}
			}
		case *ast.AssignStmt:
			for i, value := range n.Rhs {
				if name, ok := n.Lhs[min(i, len(n.Lhs)-1)].(*ast.Ident); ok && dotted(value) == "time.Since()" {
					elapsed[name.Name] = true
				}
			}
		case *ast.BinaryExpr:
			longer := n.X
			if n.Op == token.LSS || n.Op == token.LEQ {
				longer = n.Y
			} else if n.Op != token.GTR && n.Op != token.GEQ {
				break
			}
			if name := dotted(longer); name == "time.Since()" || elapsed[name] {
				note(n, "time.Since")
			}
		case *ast.SelectorExpr: // A method has a point before its name.
			if !x.packages[dotted(n.X)] {
				f.mentions["."+n.Sel.Name] = true
			}
			ast.Inspect(n.X, walk)
			return false
		case *ast.Ident:
			f.mentions[n.Name] = true
		}
		return true
	}
	ast.Inspect(d, walk)
}

// dotted writes names and calls as in the source, without arguments.
func dotted(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return dotted(e.X) + "." + e.Sel.Name
	case *ast.CallExpr:
		return dotted(e.Fun) + "()"
	case *ast.IndexExpr:
		return dotted(e.X)
	default:
		return ""
	}
}

// isFreePort reports whether an address leaves the port to the system.
func isFreePort(address ast.Expr) bool {
	if sum, ok := address.(*ast.BinaryExpr); ok {
		address = sum.Y
	}
	text, ok := address.(*ast.BasicLit)
	if !ok {
		return false
	}
	value, err := strconv.Unquote(text.Value)
	return err == nil && strings.HasSuffix(value, ":0")
}

// inRealTime returns what functions do that are reached from a root outside of every bubble.
func (x *tests) inRealTime() map[string][]clockUse {
	found, by := map[string][]clockUse{}, map[*testFunc]string{}
	next := slices.Clone(x.roots)
	for _, f := range next {
		by[f] = ""
	}
	for ; len(next) > 0; next = next[1:] {
		f := next[0]
		for i := range f.uses {
			f.uses[i].by = by[f]
		}
		if len(f.uses) > 0 || f.excepted {
			found[f.name] = f.uses
		}
		if f.excepted {
			continue // With all that it calls.
		}
		for name := range f.mentions {
			for _, callee := range x.named[name] {
				if _, seen := by[callee]; !seen {
					by[callee] = ", called by " + f.name + strings.TrimPrefix(by[f], ", called")
					next = append(next, callee)
				}
			}
		}
	}
	return found
}
