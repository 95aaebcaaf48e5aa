package mutants

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// Edit changes one declaration. It finds the place by the syntax tree, so that a refactoring which
// keeps the meaning of the place keeps the edit valid.
type Edit struct {
	// Package is the import path of a package of another module, or a folder of this module.
	Package string
	// In is the head of the function or method: "(w work) end(q, m)". Only the receiver has a type.
	// Single letters name the receiver, the parameters and the results, by their position. Names
	// that the edit does not use can be left out: "(work) end". In may also name a variable or a
	// constant of the package.
	In string
	// Find is a pattern: an expression or a statement of Go.
	//
	//   - A single lower-case letter matches any expression, and the same one everywhere.
	//   - A call without arguments matches a call with any arguments, and T{} for any literal of T.
	//   - A block without statements matches any block. A single letter in a block names it.
	//
	// Of several patterns, with semicolons between them, only the last one is changed. Those before
	// it give names, and are found before it in the source.
	Find string
	Op   Op
	// With is source. The letters of In and Find stand in it for what they were found to be.
	With string
	// Imports are the packages that With needs, as in an import declaration. The quotes may be left
	// out.
	Imports []string
}

// Op is what an edit does with the place that it finds.
type Op int

const (
	// Replace puts With in the place of what was found. Without Find, that is the declaration.
	Replace Op = iota
	// Remove removes the statement that has what was found. If this leaves an if statement without
	// statements, that goes too.
	Remove
	// Before inserts With before the statement that has what was found. Without Find, With is
	// declarations, which are inserted before that of In.
	Before
	// After inserts With after the statement that has what was found. In a select statement, what
	// comes after a communication are the statements of its case.
	After
	// Begin inserts With at the beginning of the function. It has no Find.
	Begin
)

// errEdit means that an edit does not fit the sources.
var errEdit = errors.New("mutants: edit does not fit")

// sources are files with edits. They map paths to texts.
type sources map[string][]byte

// source is a parsed file.
type source struct {
	path string
	text []byte
	tree *ast.File
}

// A declaration is a function, a variable or a constant.
type declaration struct {
	*source
	// node is an ast.FuncDecl or an ast.ValueSpec.
	node ast.Node
	// all begins where the whole declaration begins, with its comment.
	all token.Pos
	// head has the receiver's type, without a star, and the name.
	head string
}

// apply makes an edit in the package that lies in a folder.
func (s sources) apply(dir string, e *Edit) error {
	fail := func(why string, args ...any) error {
		return fmt.Errorf("%w: %s: %s: %s", errEdit, e.Package, e.In, fmt.Sprintf(why, args...))
	}
	wanted, err := parseHead(e.In)
	if err != nil {
		return fail("%v", err)
	}
	pattern, err := parsePattern(e.Find)
	if err != nil {
		return fail("%q: %v", e.Find, err)
	}
	all, err := s.declarations(dir)
	if err != nil {
		return fail("%v", err)
	}
	var in []declaration
	for _, d := range all {
		if d.head == wanted.String() {
			in = append(in, d)
		}
	}
	if len(in) != 1 {
		return fail("declared %d times in %s; it has%s", len(in), dir, similar(all, wanted))
	}
	results := map[string]place{}
	for _, p := range pattern.places(&in[0], wanted.bind(&in[0])) {
		text, err := e.at(p)
		if err != nil {
			return fail("%v, in %s", err, p)
		}
		results[string(text)] = p
	}
	switch {
	case len(results) == 0:
		return fail("nothing is like %q; near it are%s", e.Find, pattern.candidates(&in[0], all))
	case len(results) > 1:
		return fail("%d places are like %q:%s", len(results), e.Find, lines(results))
	}
	for text := range results {
		if text == string(in[0].text) {
			return fail("it changes nothing")
		}
		s[in[0].path] = []byte(text)
	}
	return nil
}

// declarations parses a package, without its tests, as it is built for this machine.
func (s sources) declarations(dir string) (all []declaration, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		if ok, err := build.Default.MatchFile(dir, name); err != nil || !ok {
			continue
		}
		path := filepath.Join(dir, name)
		text, edited := s[path]
		if !edited {
			if text, err = os.ReadFile(path); err != nil {
				return nil, err
			}
		}
		in, err := declared(path, text)
		if err != nil {
			return nil, err
		}
		all = append(all, in...)
	}
	return all, nil
}

// declared parses a file. Its positions are offsets plus one.
func declared(path string, text []byte) (all []declaration, err error) {
	tree, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := &source{path, text, tree}
	begins := func(node ast.Node, doc *ast.CommentGroup) token.Pos {
		if doc != nil {
			return doc.Pos()
		}
		return node.Pos()
	}
	for _, d := range tree.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			all = append(all, declaration{f, d, begins(d, d.Doc), headOf(d).String()})
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok {
					for _, name := range v.Names {
						all = append(all, declaration{f, v, begins(d, d.Doc), name.Name})
					}
				}
			}
		}
	}
	return all, nil
}

// cut returns the source between two positions.
func (f *source) cut(from, to token.Pos) string { return string(f.text[from-1 : to-1]) }

// line returns the number of a position's line.
func (f *source) line(at token.Pos) int { return 1 + bytes.Count(f.text[:at-1], []byte("\n")) }

// at returns the edited and formatted file.
func (e *Edit) at(p place) ([]byte, error) {
	from, to, err := e.span(p)
	if err != nil {
		return nil, err
	}
	with := p.names.fill(e.With)
	switch e.Op {
	case Before:
		with += "\n"
	case After, Begin:
		with = "\n" + with + "\n"
	}
	text := fmt.Appendf(nil, "%s%s%s", p.in.cut(1, from), with, p.in.text[to-1:])
	after, err := declared(p.in.path, text)
	if err != nil {
		return nil, fmt.Errorf("%w, with %q", err, with)
	}
	if len(after) > 0 {
		text = after[0].importing(e.Imports, p.in.source)
	}
	return format.Source(text)
}

// span returns what an edit replaces. It is empty if the edit inserts.
func (e *Edit) span(p place) (from, to token.Pos, err error) {
	path := p.path()
	fn, isFunc := p.in.node.(*ast.FuncDecl)
	switch whole := p.node == p.in.node; {
	case e.Op == Begin && whole && isFunc:
		return fn.Body.Lbrace + 1, fn.Body.Lbrace + 1, nil
	case e.Op == Replace:
		return p.node.Pos(), p.node.End(), nil
	case e.Op == Before && whole:
		return p.in.all, p.in.all, nil
	case e.Op == Begin || whole:
		return 0, 0, errors.New("the operation does not fit the pattern")
	}
	stmt, parent := listed(path)
	clause, isClause := parent.(*ast.CommClause)
	switch isComm := isClause && clause.Comm == stmt; {
	case stmt == nil || isComm && e.Op != After:
		return 0, 0, errors.New("it is in no list of statements")
	case isComm:
		return clause.Colon + 1, clause.Colon + 1, nil
	case e.Op == Before:
		return stmt.Pos(), stmt.Pos(), nil
	case e.Op == After:
		return stmt.End(), stmt.End(), nil
	}
	for _, n := range path {
		cond, ok := n.(*ast.IfStmt)
		if ok && cond.Body == parent && len(cond.Body.List) == 1 && cond.Else == nil && cond.Init == nil {
			return cond.Pos(), cond.End(), nil
		}
	}
	return stmt.Pos(), stmt.End(), nil
}

// listed returns the innermost statement of a list of statements on a path, and what has the list.
func listed(path []ast.Node) (stmt ast.Stmt, parent ast.Node) {
	for i := len(path) - 1; i > 0; i-- {
		stmt, ok := path[i].(ast.Stmt)
		switch path[i-1].(type) {
		case *ast.BlockStmt, *ast.CaseClause, *ast.CommClause:
			if ok {
				return stmt, path[i-1]
			}
		}
	}
	return nil, nil
}

// importing returns an edited file with more imports, and without those that only the replaced code
// used: their names become blank.
func (f *source) importing(more []string, before *source) []byte {
	used, usedBefore := f.bases(), before.bases()
	imported := map[string]bool{}
	text := f.text
	for i := len(f.tree.Imports) - 1; i >= 0; i-- {
		spec := f.tree.Imports[i]
		path := strings.Trim(spec.Path.Value, `"`)
		imported[path] = true
		name, at := path[strings.LastIndex(path, "/")+1:], spec.Path.Pos()
		if spec.Name != nil {
			name, at = spec.Name.Name, spec.Name.Pos()
		}
		if usedBefore[name] && !used[name] {
			text = fmt.Appendf(nil, "%s_ %s", text[:at-1], text[spec.Path.Pos()-1:])
		}
	}
	end := f.tree.Name.End()
	for _, spec := range more {
		name, path, named := strings.Cut(spec, " ")
		if !named {
			name, path = "", name
		}
		if path = strings.Trim(path, `"`); !imported[path] {
			text = fmt.Appendf(nil, "%s\nimport %s %q\n%s", text[:end-1], name, path, text[end-1:])
		}
	}
	return text
}

// bases returns the names that have a selector.
func (f *source) bases() map[string]bool {
	names := map[string]bool{}
	ast.Inspect(f.tree, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if base, ok := s.X.(*ast.Ident); ok {
				names[base.Name] = true
			}
		}
		return true
	})
	return names
}
