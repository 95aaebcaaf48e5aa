package runlog_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var updateConformance = flag.Bool("update-conformance", false, "rewrite docs/conformance.md")

// ruleCounts is how many rules each section of the contract has: ENV-1 to ENV-13, and so on.
var ruleCounts = []struct {
	section string
	rules   int
}{
	{"ENV", 13}, {"IDM", 11}, {"APP", 13}, {"READ", 8}, {"WATCH", 5}, {"PRJ", 19}, {"QUE", 12}, {"SIG", 7}, {"BUS", 9},
	{"TR", 3},
}

// tabledRules are the rules that other pages list below the heading Rules.
var tabledRules = []struct {
	page  string
	rules []string
}{
	{"access.md", []string{"SEC-1", "SEC-2", "SEC-3", "SEC-4", "SEC-5", "SEC-6", "SEC-7", "SEC-8", "SEC-9", "SEC-10", "SEC-11", "SEC-12", "SEC-13"}},
	{"plans.md", []string{"PLAN-1", "PLAN-2", "PLAN-3", "PLAN-4", "PLAN-5", "PLAN-6", "PLAN-7"}},
	{"attestation.md", []string{"ATT-1", "ATT-2", "ATT-3", "ATT-4", "ATT-5", "ATT-6", "ATT-7"}},
	{"formats.md", []string{"LIFE-5", "LIFE-9"}},
	{"engines.md", []string{"ENG-1", "ENG-2", "ENG-3", "ENG-4", "ENG-5", "ENG-6", "ENG-7"}},
	{"audit.md", []string{"TR-4", "TR-5", "TR-6"}},
	{"reading.md", []string{"TR-7"}},
}

const sections = `ENV|IDM|APP|READ|WATCH|PRJ|QUE|SIG|BUS|TR|SEC|PLAN|ATT|ENG|LIFE`

var (
	ruleID    = regexp.MustCompile(`(` + sections + `)-?([0-9]+)`)
	ruleRange = regexp.MustCompile(`(` + sections + `)-([0-9]+) to (?:` + sections + `)-([0-9]+)`)
)

const conformanceHead = `# Conformance

This page lists the tests that prove each rule of [the contract](contract.md), and of
[access](access.md#rules), [plans](plans.md#rules), [attestation](attestation.md#rules),
[formats](formats.md#rules), [engines](engines.md#rules), [audit](audit.md#rules) and
[reading](reading.md#rules). A test proves a rule if its name or the comment above it has the rule's
id. The [glossary](glossary.md) defines the words.

` + "`go test . -run TestConformance -update-conformance`" + ` makes the table. The build fails if it is not up
to date, or if a rule has no test. The [differences](#differences) behind it are written by hand.

| rule | tests |
|---|---|
`

// TestConformance holds docs/conformance.md to the tests in the tree, and every rule to a test.
func TestConformance(t *testing.T) {
	carriers, err := ruleCarriers()
	if err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	page.WriteString(conformanceHead)
	row := func(id, place string) {
		tests := carriers[id]
		if len(tests) == 0 {
			t.Errorf("%s has no test: name one after it", id)
		}
		fmt.Fprintf(&page, "| [%s](%s) | %s |\n", id, place, strings.Join(tests, ", "))
	}
	for _, s := range ruleCounts {
		for n := 1; n <= s.rules; n++ {
			id := fmt.Sprintf("%s-%d", s.section, n)
			row(id, "contract.md#"+strings.ToLower(id))
		}
	}
	for _, page := range tabledRules {
		for _, id := range page.rules {
			row(id, page.page+"#rules")
		}
	}
	path := filepath.Join("docs", "conformance.md")
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	differences := bytes.Index(have, []byte("\n## Differences\n"))
	if differences < 0 {
		t.Fatalf("%s has no differences", path)
	}
	page.Write(have[differences:])
	if *updateConformance {
		if err := os.WriteFile(path, page.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if !bytes.Equal(have, page.Bytes()) {
		t.Errorf("%s is not up to date: go test . -run TestConformance -update-conformance", path)
	}
}

// differenceCounts is how many differences the page lists of each document. They are written by
// hand, so that a merge can lose some.
var differenceCounts = map[string]int{"1.1": 19, "2.0": 2, "Compute Substrate": 10, "Temporal Adapter": 27}

var differenceRow = regexp.MustCompile(`(?m)^\| ([A-Z0-9][A-Za-z0-9. ]*?) (?:§|appendix)[^|]*(?: \|[^|\n]+){3} \|$`)

// TestConformanceDifferences wants each difference that was found on the page, with its reason.
func TestConformanceDifferences(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("docs", "conformance.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n## Differences\n")
	have := map[string]int{}
	for _, row := range differenceRow.FindAllStringSubmatch(table, -1) {
		have[row[1]]++
	}
	if !maps.Equal(have, differenceCounts) {
		t.Errorf("docs/conformance.md has the differences %v, want %v", have, differenceCounts)
	}
}

var contractHeading = regexp.MustCompile(`(?m)^### (.*)$`)

// TestContract wants one heading in docs/contract.md for each rule, in their order, and no other.
func TestContract(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("docs", "contract.md"))
	if err != nil {
		t.Fatal(err)
	}
	var have, want []string
	for _, m := range contractHeading.FindAllSubmatch(text, -1) {
		have = append(have, string(m[1]))
	}
	for _, s := range ruleCounts {
		for n := 1; n <= s.rules; n++ {
			want = append(want, fmt.Sprintf("%s-%d", s.section, n))
		}
	}
	if !slices.Equal(have, want) {
		t.Errorf("docs/contract.md has the headings\n%s\nwant\n%s", strings.Join(have, " "), strings.Join(want, " "))
	}
}

var tabledRule = regexp.MustCompile(`(?m)^\| ([A-Z]+-[0-9]+) \|`)

// TestTabledRules wants one row in the tables of the other pages for each rule, in their order.
func TestTabledRules(t *testing.T) {
	for _, page := range tabledRules {
		text, err := os.ReadFile(filepath.Join("docs", page.page))
		if err != nil {
			t.Fatal(err)
		}
		var have []string
		_, table, _ := strings.Cut(string(text), "\n## Rules\n")
		for _, m := range tabledRule.FindAllStringSubmatch(table, -1) {
			have = append(have, m[1])
		}
		if !slices.Equal(have, page.rules) {
			t.Errorf("docs/%s has the rules %q, want %q", page.page, have, page.rules)
		}
	}
}

// ruleCarriers finds the tests and fuzz targets that name each rule.
func ruleCarriers() (map[string][]string, error) {
	carriers := map[string][]string{}
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); name != "." && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "tools" || name == "third_party") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		return carriersIn(path, carriers)
	})
	for _, tests := range carriers {
		slices.Sort(tests)
	}
	return carriers, err
}

func carriersIn(path string, carriers map[string][]string) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") && !strings.HasPrefix(f.Name.Name, "Fuzz") {
			continue
		}
		name := fmt.Sprintf("`%s` %s", filepath.ToSlash(filepath.Dir(path)), f.Name.Name)
		for id := range rulesOf(f.Name.Name + " " + strings.Join(strings.Fields(f.Doc.Text()), " ")) {
			carriers[id] = append(carriers[id], name)
		}
	}
	return nil
}

// rulesOf returns the rules that a text names, alone or as a range.
func rulesOf(text string) map[string]bool {
	ids := map[string]bool{}
	for _, m := range ruleID.FindAllStringSubmatch(text, -1) {
		ids[m[1]+"-"+m[2]] = true
	}
	for _, m := range ruleRange.FindAllStringSubmatch(text, -1) {
		first, _ := strconv.Atoi(m[2])
		last, _ := strconv.Atoi(m[3])
		for n := first; n <= min(last, first+99); n++ {
			ids[fmt.Sprintf("%s-%d", m[1], n)] = true
		}
	}
	return ids
}

var namedTest = regexp.MustCompile("`(Test[A-Za-z0-9_]+)`")

// TestThreatModel wants each test that docs/threat-model.md names in the tree.
func TestThreatModel(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("docs", "threat-model.md"))
	if err != nil {
		t.Fatal(err)
	}
	list, err := exec.Command("git", "grep", "-hoE", "--untracked", "^func Test[A-Za-z0-9_]+", "--", "*_test.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	tests := strings.Split(string(list), "\n")
	for _, m := range namedTest.FindAllSubmatch(page, -1) {
		if !slices.Contains(tests, "func "+string(m[1])) {
			t.Errorf("docs/threat-model.md names %s, and no package has it", m[1])
		}
	}
}
