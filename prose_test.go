package runlog_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// Limits of prose, in characters.
const (
	maxProseLine     = 100
	tabWidth         = 4
	maxLogMessage    = 60
	maxCommitSubject = 72
)

// A fault is one place that breaks a rule of prose.
type fault struct {
	rule string
	at   string // File and line.
	says string
}

// A span is text that a rule looks at, with the line on which it begins.
type span struct {
	line int
	text string
}

// prose is what the rules check in one file.
type prose struct {
	file     string
	lines    []span // Lines of comments, or of a document, as they are in the file.
	text     []span // Comments or paragraphs as one line each, without code.
	messages []span // Messages of log calls.
	errors   []span // Texts of errors.
}

// TestProse holds comments, documents, log lines and errors to the rules of CONTRIBUTING.md.
func TestProse(t *testing.T) {
	words := replacedWords(t)
	var found []fault
	for _, name := range proseFiles(t) {
		text, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			continue // Deleted, and not yet in the index.
		}
		if err != nil {
			t.Fatal(err)
		}
		p, err := readProse(name, text)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, p.faults(words)...)
	}
	for _, f := range found {
		t.Errorf("%s: %s (rule %q)", f.at, f.says, f.rule)
	}
}

// proseFiles lists the files that have prose: code, scripts and documents.
func proseFiles(t *testing.T) []string {
	t.Helper()
	list, err := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "--",
		"*.go", "*.proto", "*.md", "*.sh", "Makefile", ".golangci.yml", ".ci/run", ".ci/temporal").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(list))
}

func readProse(name string, text []byte) (prose, error) {
	switch {
	case bytes.Contains(text[:min(len(text), 300)], []byte("Code generated")), name == "docs/conformance.md":
		return prose{file: name}, nil
	case strings.HasSuffix(name, ".go"):
		return goProse(name, text)
	case strings.HasSuffix(name, ".proto"):
		return lineProse(name, text, "//"), nil
	case strings.HasSuffix(name, ".md"):
		return markdownProse(name, text), nil
	}
	return lineProse(name, text, "#"), nil
}

// goProse takes the comments, the log messages and the errors' texts out of a Go file.
func goProse(name string, text []byte) (prose, error) {
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, name, text, parser.ParseComments)
	if err != nil {
		return prose{}, err
	}
	p := prose{file: name}
	source := strings.Split(string(text), "\n")
	for _, group := range tree.Comments {
		first, last := files.Position(group.Pos()).Line, files.Position(group.End()).Line
		for n := first; n <= last; n++ {
			if !strings.HasPrefix(strings.TrimSpace(source[n-1]), "//go:") {
				p.lines = append(p.lines, span{n, source[n-1]})
			}
		}
		p.text = append(p.text, span{first, strings.Join(strings.Fields(group.Text()), " ")})
	}
	for _, decl := range tree.Decls {
		wrapper := isLogMethod(decl)
		ast.Inspect(decl, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			line := files.Position(call.Pos()).Line
			message := logMessage(call)
			if _, handedOn := message.(*ast.Ident); message != nil && (!wrapper || !handedOn) {
				p.messages = append(p.messages, span{line, literalText(message)})
			}
			if isErrorCall(call) {
				p.errors = append(p.errors, span{line, literalText(call.Args[0])})
			}
			return true
		})
	}
	return p, nil
}

// messageAt says which argument of a logger's method is the message. Such a method may hand on its
// message, because the rule checks the method's calls.
var messageAt = map[string]int{
	"Debug": 0, "Info": 0, "Warn": 0, "Error": 0,
	"DebugContext": 1, "InfoContext": 1, "WarnContext": 1, "ErrorContext": 1, "Log": 2, "LogAttrs": 2,
	"every":     3, // Of limitedLog in server/peer.
	"Failed":    1, // Of outage.Log.
	"Succeeded": 1, // Of outage.Log.
	"Accept":    2, // Of hclog.SinkAdapter: the message is a library's.
}

// isLogMethod reports whether a declaration is a method that messageAt lists.
func isLogMethod(decl ast.Decl) bool {
	f, ok := decl.(*ast.FuncDecl)
	if !ok || f.Recv == nil {
		return false
	}
	_, ok = messageAt[f.Name.Name]
	return ok
}

// logMessage returns the message of a call of a slog.Logger, which it knows by the logger's name.
func logMessage(call *ast.CallExpr) ast.Expr {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	logger := ""
	switch x := method.X.(type) {
	case *ast.Ident:
		logger = x.Name
	case *ast.SelectorExpr:
		logger = x.Sel.Name
	}
	logger = strings.ToLower(logger)
	if !strings.HasSuffix(logger, "log") && !strings.HasSuffix(logger, "logger") {
		return nil
	}
	at, ok := messageAt[method.Sel.Name]
	if !ok || at >= len(call.Args) {
		return nil
	}
	return call.Args[at]
}

// isErrorCall reports whether a call makes an error from a text.
func isErrorCall(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 {
		return false
	}
	pkg, ok := f.X.(*ast.Ident)
	return ok && (pkg.Name == "errors" && f.Sel.Name == "New" || pkg.Name == "fmt" && f.Sel.Name == "Errorf")
}

// literalText returns the string literals of an expression, put together.
func literalText(e ast.Expr) string {
	var text strings.Builder
	ast.Inspect(e, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if s, err := strconv.Unquote(lit.Value); err == nil {
				text.WriteString(s)
			}
		}
		_, call := n.(*ast.CallExpr)
		return !call
	})
	return text.String()
}

// lineProse takes the lines that are comments alone out of a file. They begin with marker.
func lineProse(name string, text []byte, marker string) prose {
	p := prose{file: name}
	for i, line := range strings.Split(string(text), "\n") {
		if comment, ok := strings.CutPrefix(strings.TrimSpace(line), marker); ok {
			p.lines = append(p.lines, span{i + 1, line})
			p.text = append(p.text, span{i + 1, strings.TrimSpace(comment)})
		}
	}
	return p
}

// markdownProse takes the paragraphs and the tables' text out of a document, without its blocks of
// code.
func markdownProse(name string, text []byte) prose {
	p := prose{file: name}
	fence := ""
	for i, line := range strings.Split(string(text), "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case fence != "":
			if strings.HasPrefix(trimmed, fence) {
				fence = ""
			}
			continue
		case strings.HasPrefix(trimmed, "```"):
			fence = "```"
			continue
		case strings.HasPrefix(line, "    ") && (len(p.lines) == 0 || p.lines[len(p.lines)-1].line < i):
			continue // An indented block: no line of a paragraph comes right before it.
		case trimmed == "":
			continue
		}
		if !strings.HasPrefix(trimmed, "|") {
			p.lines = append(p.lines, span{i + 1, line})
		}
		if name == "docs/glossary.md" {
			continue // It quotes the words that it replaces.
		}
		p.text = append(p.text, span{i + 1, codeOrLink.ReplaceAllString(trimmed, "$1")})
	}
	return p
}

// codeOrLink matches inline code, and a link of which the text stays.
var codeOrLink = regexp.MustCompile("`[^`]*`|\\[([^\\]]*)\\]\\([^)]*\\)")

// faults checks one file against every rule.
func (p prose) faults(words []replacedWord) []fault {
	var out []fault
	add := func(rule string, line int, says string) {
		out = append(out, fault{rule, fmt.Sprintf("%s:%d", p.file, line), says})
	}
	for _, l := range p.lines {
		if n := width(l.text); n > maxProseLine && breakable(l.text) {
			add("lines", l.line, fmt.Sprintf("%d characters; break the line after at most %d", n, maxProseLine))
		}
	}
	for _, m := range p.messages {
		for _, says := range checkMessage(m.text) {
			add("messages", m.line, fmt.Sprintf("log message %q %s", m.text, says))
		}
	}
	for _, s := range slices.Concat(p.text, p.messages, p.errors) {
		for _, w := range words {
			if w.pattern.MatchString(s.text) {
				add("words", s.line, fmt.Sprintf("%q: write %s (docs/glossary.md)", w.word, w.instead))
			}
		}
	}
	for _, s := range slices.Concat(p.text, p.messages, p.errors) {
		for _, actor := range bareActor.FindAllString(s.text, -1) {
			add("actors", s.line, fmt.Sprintf("%q: name the actor, such as the leader, the caller, a reader", actor))
		}
	}
	return out
}

var bareActor = regexp.MustCompile(`(?i)\b(who|whom|whoever|nobody|somebody)\b`)

// width counts characters; a tab counts as tabWidth.
func width(line string) int {
	return utf8.RuneCountInString(line) + (tabWidth-1)*strings.Count(line, "\t")
}

// unbreakable matches what may not be broken: inline code and links.
var unbreakable = regexp.MustCompile("`[^`]*`|\\[[^\\]]*\\]\\([^)]*\\)")

// breakable reports whether a line has a blank at which it could be broken, after its first word.
func breakable(line string) bool {
	line = strings.TrimSpace(unbreakable.ReplaceAllStringFunc(line, func(s string) string {
		return strings.Repeat("x", utf8.RuneCountInString(s))
	}))
	line = strings.TrimSpace(strings.TrimLeft(line, "/-*0123456789."))
	return strings.Contains(line, " ")
}

// checkMessage wants the name of an event: what varies belongs into key-value pairs.
func checkMessage(m string) []string {
	var out []string
	first, _ := utf8.DecodeRuneInString(m)
	switch {
	case m == "":
		return []string{"has no literal text: name the event"}
	case !unicode.IsLower(first):
		out = append(out, "begins with another character than a small letter")
	}
	if strings.HasSuffix(m, ".") || strings.HasSuffix(m, "!") || strings.HasSuffix(m, " ") || strings.HasSuffix(m, ":") {
		out = append(out, "ends like a sentence, or goes on behind its text")
	}
	if strings.Contains(m, ", ") || strings.Contains(m, ": ") || strings.Contains(m, ". ") {
		out = append(out, "is a sentence: name the event, and put the rest into key-value pairs")
	}
	if strings.Contains(m, "%") {
		out = append(out, "has a verb of fmt: use key-value pairs")
	}
	if n := utf8.RuneCountInString(m); n > maxLogMessage {
		out = append(out, fmt.Sprintf("has %d characters, more than %d", n, maxLogMessage))
	}
	return out
}

// A replacedWord is one that docs/glossary.md has another for.
type replacedWord struct {
	word, instead string
	pattern       *regexp.Regexp
}

// replacedWords reads the first table under "Words that are not used" in docs/glossary.md.
func replacedWords(t *testing.T) []replacedWord {
	t.Helper()
	text, err := os.ReadFile("docs/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	words := parseGlossary(string(text))
	if len(words) < 5 {
		t.Fatalf("docs/glossary.md has %d replaced words", len(words))
	}
	return words
}

func parseGlossary(text string) []replacedWord {
	_, text, _ = strings.Cut(text, "\n## Words that are not used\n")
	_, text, _ = strings.Cut(text, "\n| instead of | write |\n|---|---|\n")
	var out []replacedWord
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 2 {
			break
		}
		for word := range strings.SplitSeq(cells[0], ",") {
			word = strings.TrimSpace(word)
			pattern := regexp.MustCompile(`(?i)\b` + strings.ReplaceAll(regexp.QuoteMeta(word), " ", `\s+`) + `\b`)
			out = append(out, replacedWord{word, strings.TrimSpace(cells[1]), pattern})
		}
	}
	return out
}

// TestProseGlossary wants one link to the glossary on every page of docs.
func TestProseGlossary(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	if err != nil || len(pages) < 5 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		want := 1
		if page == "docs/glossary.md" {
			want = 0
		}
		if n := bytes.Count(text, []byte("](glossary.md)")); n != want {
			t.Errorf("%s: want %d links to glossary.md, got %d", page, want, n)
		}
	}
}
