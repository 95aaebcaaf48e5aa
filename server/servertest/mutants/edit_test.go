package mutants

import (
	"encoding/json"
	"go/format"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"runlog/server/servertest/sim"
)

// TestTable requires that mutants are complete, and that their edits parse. It reads no source of
// the product.
func TestTable(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, m := range All() {
		if m.Name == "" || m.Breaks == "" || m.What == "" || len(m.Edits) == 0 || names[m.Name] {
			t.Errorf("mutant %q: a field is missing, or the name is taken", m.Name)
		}
		names[m.Name] = true
		for _, kind := range m.Faults {
			if !slices.Contains(slices.Concat(sim.Kinds(), sim.Scenarios()), sim.Kind(kind)) {
				t.Errorf("%s: no kind of fault and no scenario is called %q", m.Name, kind)
			}
		}
		if (m.Package != "") != (m.Test != "") || m.Package != "" && len(m.Faults) > 0 {
			t.Errorf("%s: it has faults, or a package without a test", m.Name)
		}
		for _, e := range m.Edits {
			_, headErr := parseHead(e.In)
			if _, err := parsePattern(e.Find); err != nil || headErr != nil {
				t.Errorf("%s: %v, %v", m.Name, headErr, err)
			}
		}
	}
	if len(names) < 110 {
		t.Errorf("%d mutants, want 110 at least", len(names))
	}
}

// store is a package for edits.
const store = `package store

import (
	"errors"
	"sort"
)

const limit = 3

type Store struct{ rows map[string]int }

// Put stores a row.
func (s *Store) Put(key string, n int) (err error) {
	if n < 0 {
		return errors.New("negative")
	}
	old, found := s.rows[key]
	if err = s.check(key, n); err == nil {
		err = s.sync()
	}
	if found && (old > limit || old == n) {
		s.log("again", old)
	}
	s.rows[key] = n
	return err
}

func (s *Store) drain(next <-chan string, stop chan bool) []string {
	var all []string
	for _, key := range []string{"a", "b"} {
		all = append(all, key)
	}
	select {
	case key := <-next:
		all = append(all, key)
	case <-stop:
	}
	sort.Strings(all)
	return all
}
`

// refactored is the same package after refactorings: names of variables have changed, the functions
// have another order, one is in another file, statements were added, and lines are broken.
var refactored = map[string]string{"store.go": `package store

import "sort"

const limit = 3

func (db *Store) drain(from <-chan string, done chan bool) []string {
	result := make([]string, 0, 2)
	for _, id := range []string{"a", "b"} { result = append(result, id) }
	db.log("draining")
	select {
	case <-done:
		db.log("done")
	case id, ok := <-from:
		if ok { result = append(result, id) }
	}
	db.log("drained")
	sort.Strings(
		result,
	)
	return result
}
`, "put.go": `package store

import "errors"

type Store struct{ rows map[string]int }

func (db *Store) Put(id string, count int) (failure error) {
	db.log("put")
	if count < 0 { return errors.New("negative") }
	before, was := db.rows[id]
	db.log("found")
	if failure = db.check(id, count); failure == nil {
		// It is durable before it is seen.
		failure = db.sync()
	}
	if was && (before == count ||
		before > limit) {
		db.log("again", before)
	}
	db.log("stored")
	db.rows[id] = count
	return failure
}
`}

var edits = []struct {
	name string
	edit Edit
	// was and is are what changes in store, and below it what changes in refactored.
	was, is, wasThere, isThere string
}{
	{
		"replace an expression", Edit{In: "(Store) Put", Find: "o > limit", With: "o >= limit"},
		"old > limit", "old >= limit", "before > limit", "before >= limit",
	}, {
		"replace a call", Edit{In: "(Store) Put", Find: "s.check()", With: "error(nil)"},
		"s.check(key, n)", "error(nil)", "db.check(id, count)", "error(nil)",
	}, {
		"replace with the letters of the head",
		Edit{In: "(s Store) Put(k, n)", Find: "s.rows[k] = n", With: "s.rows[k] = max(n, s.rows[k])"},
		"s.rows[key] = n", "s.rows[key] = max(n, s.rows[key])", "db.rows[id] = count",
		"db.rows[id] = max(count, db.rows[id])",
	}, {
		"replace with a name from before",
		Edit{In: "(Store) Put", Find: "o, f := s.rows[k]; f && x", With: "f && o != 0 && x"},
		"found && (", "found && old != 0 && (", "was && (", "was && before != 0 && (",
	}, {
		"a result", Edit{In: "(Store) Put() (e)", Find: "return e", With: "_ = e\nreturn nil"},
		"return err\n", "_ = err\n\treturn nil\n", "return failure\n", "_ = failure\n\treturn nil\n",
	}, {
		"a block", Edit{In: "(Store) drain", Find: "for _, k := range l { b }", With: "for _, k := range l[1:] {b}"},
		`[]string{"a", "b"} {`, `[]string{"a", "b"}[1:] {`, `[]string{"a", "b"} {`, `[]string{"a", "b"}[1:] {`,
	}, {
		"remove a statement", Edit{In: "(Store) Put", Find: "errors.New()", Op: Remove},
		"if n < 0 {\n\t\treturn errors.New(\"negative\")\n\t}\n", "",
		"if count < 0 { return errors.New(\"negative\") }\n", "",
	}, {
		"remove, but keep an if that begins with a statement", Edit{In: "(Store) Put", Find: "s.sync()", Op: Remove},
		"err = s.sync()\n", "", "failure = db.sync()\n", "",
	}, {
		"before", Edit{In: "(Store) drain", Find: "sort.Strings(a)", Op: Before, With: "a = a[:1]"},
		"sort.Strings(all)", "all = all[:1]\n\tsort.Strings(all)",
		"sort.Strings(\n\t\tresult,", "result = result[:1]\n\tsort.Strings(\n\t\tresult,",
	}, {
		"after", Edit{In: "(s Store) Put", Find: "s.rows[k] = n", Op: After, With: "delete(s.rows, k)"},
		"s.rows[key] = n\n", "s.rows[key] = n\n\tdelete(s.rows, key)\n", "db.rows[id] = count\n",
		"db.rows[id] = count\n\tdelete(db.rows, id)\n",
	}, {
		"after a communication", Edit{In: "(Store) drain(n, s)", Find: "<-s", Op: After, With: "return nil"},
		"case <-stop:\n", "case <-stop:\n\t\treturn nil\n", "case <-done:\n", "case <-done:\n\t\treturn nil\n",
	}, {
		"begin", Edit{In: "(s Store) Put(k, n)", Op: Begin, With: "n = len(k)"},
		"(err error) {\n", "(err error) {\n\tn = len(key)\n", "(failure error) {\n",
		"(failure error) {\n\tcount = len(id)\n",
	}, {
		"a constant", Edit{In: "limit", With: "limit = 4"}, "limit = 3", "limit = 4", "limit = 3", "limit = 4",
	}, {
		"declare and import",
		Edit{In: "(Store) drain", Op: Before, With: "var at time.Time\n", Imports: []string{"time", `old "sort"`}},
		"func (s *Store) drain", "var at time.Time\n\nfunc (s *Store) drain", "func (db *Store) drain",
		"var at time.Time\n\nfunc (db *Store) drain",
	}, {
		"an import that is no longer used", Edit{In: "(Store) drain", Find: "sort.Strings()", Op: Remove},
		"\tsort.Strings(all)\n", "", "\tsort.Strings(\n\t\tresult,\n\t)\n", "",
	},
}

// imports are the changes of imports that some of the edits need.
var imports = map[string][2][]string{
	"remove a statement": {{"\t\"errors\"", "\t_ \"errors\""},
		{"import \"errors\"", "import _ \"errors\""}},
	"declare and import": {{"package store\n", "package store\n\nimport \"time\"\n"},
		{"package store\n", "package store\n\nimport \"time\"\n"}},
	"an import that is no longer used": {{"\t\"sort\"", "\t_ \"sort\""}, {"import \"sort\"", "import _ \"sort\""}},
}

// TestEdits makes edits in a package, and the same ones in the refactored package.
func TestEdits(t *testing.T) {
	t.Parallel()
	for _, tt := range edits {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			wantEdit(t, map[string]string{"store.go": store}, tt.edit, tt.was, tt.is, imports[tt.name][0])
			wantEdit(t, refactored, tt.edit, tt.wasThere, tt.isThere, imports[tt.name][1])
		})
	}
}

// wantEdit wants that an edit replaces a text, and that it changes imports.
func wantEdit(t *testing.T, files map[string]string, e Edit, was, is string, imports []string) {
	t.Helper()
	dir := t.TempDir()
	want := ""
	for name, text := range files {
		writeFile(t, dir, name, text)
		if strings.Contains(text, was) {
			if strings.Count(text, was) != 1 || want != "" {
				t.Fatalf("the test has %q twice", was)
			}
			want = strings.Replace(text, was, is, 1)
		}
	}
	if imports != nil {
		want = strings.Replace(want, imports[0], imports[1], 1)
	}
	formatted, err := format.Source([]byte(want))
	if err != nil {
		t.Fatalf("the test: %v", err)
	}
	edited := sources{}
	if err := edited.apply(dir, &e); err != nil {
		t.Fatal(err)
	}
	for _, text := range edited {
		if strings.Join(strings.Fields(string(text)), " ") != strings.Join(strings.Fields(string(formatted)), " ") {
			t.Errorf("got\n%s\nwant\n%s", text, formatted)
		}
	}
	if len(edited) != 1 {
		t.Errorf("%d files are edited", len(edited))
	}
}

func writeFile(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestEditsFail requires that an edit that does not fit says why, and where it may belong.
func TestEditsFail(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, dir, "store.go", store)
	for _, tt := range []struct {
		name string
		edit Edit
		want []string
	}{
		{"no function", Edit{In: "(Store) Get", Find: "a.b", With: "c"},
			[]string{"(Store) Get: declared 0 times", "\n\t(Store) Put", "\n\t(Store) drain"}},
		{"no receiver", Edit{In: "drain", Find: "a.b", With: "c"}, []string{"declared 0 times", "\n\t(Store) drain"}},
		{"no place", Edit{In: "(Store) Put", Find: "a < limit", With: "true"},
			[]string{`nothing is like "a < limit"`, "(Store) Put: " + dir + "/store.go:21: if found && (old > limit || old == n) {"}},
		{"elsewhere", Edit{In: "(Store) Put", Find: "sort.Strings()", Op: Remove},
			[]string{"nothing is like", "(Store) drain: ", "store.go:38: sort.Strings(all)"}},
		{"two places", Edit{In: "(Store) Put", Find: "return e", With: "return nil"},
			[]string{"2 places are like", "store.go:15: return errors.New", "store.go:25: return err"}},
		{"no change", Edit{In: "(Store) Put", Find: "o > limit", With: "o > limit"}, []string{"it changes nothing"}},
		{"no source", Edit{In: "(Store) Put", Find: "o > limit", With: "o >"}, []string{"expected operand"}},
		{"no pattern", Edit{In: "(Store) Put", Find: "o >", With: "o"}, []string{`"o >": `}},
		{"no head", Edit{In: "(Store Put", With: "o"}, []string{"missing ','"}},
		{"no statement", Edit{In: "(Store) drain(n, s)", Find: "<-s", Op: Before, With: "return"},
			[]string{"in no list of statements"}},
		{"no pattern to remove", Edit{In: "(Store) drain", Op: Remove}, []string{"the operation does not fit"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := sources{}.apply(dir, &tt.edit)
			for _, want := range tt.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("want %q in %v", want, err)
				}
			}
		})
	}
}

// TestArguments makes two edits of one file, and one in another module.
func TestArguments(t *testing.T) {
	t.Parallel()
	root, module, dir := t.TempDir(), t.TempDir(), t.TempDir()
	writeFile(t, root, "go.mod", "module runlog\n")
	writeFile(t, root, "go.sum", "sums\n")
	writeFile(t, root, "store.go", store)
	writeFile(t, module, "go.mod", "module "+hashicorpRaft+"\n")
	writeFile(t, module, "raft.go", "package raft\n\nconst limit = 1\n")
	args, err := Arguments(dir, Dirs{"": root, hashicorpRaft: module}, []Edit{
		{In: "limit", With: "limit = 4"},
		{In: "(Store) Put", Find: "o > limit", With: "o < limit"},
		{Package: hashicorpRaft, In: "limit", With: "limit = 2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	overlay, modfile := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "go.mod")
	if want := []string{"-overlay=" + overlay, "-modfile=" + modfile}; !slices.Equal(args, want) {
		t.Errorf("got %q, want %q", args, want)
	}
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var o struct{ Replace map[string]string }
	if err := json.Unmarshal([]byte(read(overlay)), &o); err != nil || len(o.Replace) != 1 {
		t.Fatalf("%v, %v", o, err)
	}
	text := read(o.Replace[filepath.Join(root, "store.go")])
	if !strings.Contains(text, "limit = 4") || !strings.Contains(text, "old < limit") {
		t.Errorf("an edit is missing:\n%s", text)
	}
	replaced := filepath.Join(dir, "github.com-hashicorp-raft")
	if text := read(modfile); !strings.Contains(text, "replace "+hashicorpRaft+" => "+replaced) {
		t.Errorf("got %q", text)
	}
	if text := read(filepath.Join(replaced, "raft.go")); !strings.Contains(text, "limit = 2") {
		t.Errorf("got %q", text)
	}
}
