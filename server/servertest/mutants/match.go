package mutants

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// head is the head of a function: what In of an edit names.
type head struct {
	receiver string // its type, without a star; empty: none
	name     string
	// letters are those of the receiver, the parameters and the results.
	self            string
	params, results []string
}

func (h *head) String() string {
	if h.receiver == "" {
		return h.name
	}
	return "(" + h.receiver + ") " + h.name
}

// parseHead parses In of an edit.
func parseHead(in string) (*head, error) {
	if !strings.HasSuffix(in, ")") {
		in += "()"
	}
	tree, err := parser.ParseFile(token.NewFileSet(), "", "package p; func "+in, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	fn, ok := tree.Decls[0].(*ast.FuncDecl)
	if !ok || len(tree.Decls) > 1 {
		return nil, fmt.Errorf("%q is no head of a function", in)
	}
	return headOf(fn), nil
}

// headOf returns the head of a function. A field without a name gives its type, if that is a name:
// the head of an edit has no types.
func headOf(fn *ast.FuncDecl) *head {
	h := &head{name: fn.Name.Name}
	flat := func(list *ast.FieldList) (names []string) {
		if list == nil {
			return nil
		}
		for _, f := range list.List {
			for _, name := range f.Names {
				names = append(names, name.Name)
			}
			if name, ok := f.Type.(*ast.Ident); len(f.Names) == 0 && ok {
				names = append(names, name.Name)
			} else if len(f.Names) == 0 {
				names = append(names, "_")
			}
		}
		return names
	}
	h.params, h.results = flat(fn.Type.Params), flat(fn.Type.Results)
	if fn.Recv != nil {
		h.receiver = typeName(fn.Recv.List[0].Type)
		if names := fn.Recv.List[0].Names; len(names) > 0 {
			h.self = names[0].Name
		}
	}
	return h
}

// typeName returns the name of a receiver's type, without a star and a type parameter.
func typeName(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return typeName(t.X)
	case *ast.IndexExpr:
		return typeName(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}

// names are what letters were found to be.
type names map[string]string

// bind returns what the letters of a head are in a declaration.
func (h *head) bind(d *declaration) names {
	found := names{}
	fn, ok := d.node.(*ast.FuncDecl)
	if !ok {
		return found
	}
	actual := headOf(fn)
	add := func(letters, list []string) {
		for i, letter := range letters {
			if i < len(list) && isLetter(letter) {
				found[letter] = list[i]
			}
		}
	}
	add([]string{h.self}, []string{actual.self})
	add(h.params, actual.params)
	add(h.results, actual.results)
	return found
}

func isLetter(name string) bool { return len(name) == 1 && 'a' <= name[0] && name[0] <= 'z' }

// fill returns a text with its letters replaced. The name of a field or a method is no letter.
func (n names) fill(text string) string {
	var b strings.Builder
	var s scanner.Scanner
	files := token.NewFileSet()
	file := files.AddFile("", -1, len(text))
	s.Init(file, []byte(text), func(token.Position, string) {}, scanner.ScanComments)
	done, before := 0, token.ILLEGAL
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return b.String() + text[done:]
		}
		if is, ok := n[lit]; ok && tok == token.IDENT && before != token.PERIOD {
			at := file.Offset(pos)
			b.WriteString(text[done:at] + is)
			done = at + len(lit)
		}
		before = tok
	}
}

// pattern is Find of an edit: its parts, of which the last one is what is changed.
type pattern []ast.Node

// parsePattern parses Find of an edit.
func parsePattern(find string) (pattern, error) {
	tree, err := parser.ParseFile(token.NewFileSet(), "", "package p; func _() {"+find+"}", parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var p pattern
	for _, stmt := range tree.Decls[0].(*ast.FuncDecl).Body.List {
		if x, ok := stmt.(*ast.ExprStmt); ok {
			p = append(p, x.X)
		} else {
			p = append(p, stmt)
		}
	}
	return p, nil
}

// place is a place that is like a pattern.
type place struct {
	in    *declaration
	node  ast.Node
	names names
}

func (p place) String() string {
	return fmt.Sprintf("%s:%d: %s", p.in.path, p.in.line(p.node.Pos()), p.in.cut(p.node.Pos(), p.node.End()))
}

// path returns the nodes that have the place's node, from outside, and itself.
func (p place) path() (path []ast.Node) {
	found := false
	ast.Inspect(p.in.node, func(n ast.Node) bool {
		if found {
			return false
		}
		if n == nil {
			path = path[:len(path)-1]
			return false
		}
		path = append(path, n)
		found = n == p.node
		return !found
	})
	return path
}

// places returns the places of a declaration that are like a pattern. An empty pattern is like the
// whole declaration.
func (p pattern) places(in *declaration, given names) (found []place) {
	if len(p) == 0 {
		return []place{{in, in.node, given}}
	}
	var search func(parts pattern, from token.Pos, given names)
	search = func(parts pattern, from token.Pos, given names) {
		fields := map[ast.Node]bool{} // the names behind a dot
		ast.Inspect(in.node, func(n ast.Node) bool {
			switch n := n.(type) {
			case nil:
				return false
			case *ast.SelectorExpr:
				fields[n.Sel] = true
			case *ast.ParenExpr:
				return true // What is in the parentheses comes next.
			}
			if fields[n] || n.Pos() < from {
				return n.End() > from
			}
			m := matcher{in.source, maps.Clone(given)}
			switch {
			case !m.matches(parts[0], n):
			case len(parts) == 1:
				found = append(found, place{in, n, m.names})
			default:
				search(parts[1:], n.Pos()+1, m.names)
			}
			return true
		})
	}
	search(p, 0, given)
	return found
}

// matcher compares syntax trees, and finds what letters are.
type matcher struct {
	in    *source
	names names
}

// matches reports whether a node is like a pattern.
func (m *matcher) matches(pattern, n ast.Node) bool {
	if p, ok := pattern.(ast.Expr); ok {
		x, ok := n.(ast.Expr)
		return ok && m.expr(p, x)
	}
	return reflect.TypeOf(pattern) == reflect.TypeOf(n) && m.value(reflect.ValueOf(pattern), reflect.ValueOf(n))
}

// is reports whether a letter matches a source: it has matched none so far, or the same one.
func (m *matcher) is(letter string, from, to token.Pos) bool {
	text := m.in.cut(from, to)
	if known, ok := m.names[letter]; ok {
		return slices.Equal(strings.Fields(known), strings.Fields(text))
	}
	m.names[letter] = text
	return true
}

func (m *matcher) expr(pattern, x ast.Expr) bool {
	if letter, ok := pattern.(*ast.Ident); ok && isLetter(letter.Name) {
		return m.is(letter.Name, x.Pos(), x.End())
	}
	pattern, x = ast.Unparen(pattern), ast.Unparen(x)
	switch p := pattern.(type) {
	case *ast.CallExpr:
		if call, ok := x.(*ast.CallExpr); ok && len(p.Args) == 0 {
			return m.expr(p.Fun, call.Fun)
		}
	case *ast.CompositeLit:
		if literal, ok := x.(*ast.CompositeLit); ok && len(p.Elts) == 0 && p.Type != nil && literal.Type != nil {
			return m.expr(p.Type, literal.Type)
		}
	}
	p, v := reflect.ValueOf(pattern), reflect.ValueOf(x)
	return p.Type() == v.Type() && m.value(p.Elem(), v.Elem())
}

// block reports whether a block is like that of a pattern.
func (m *matcher) block(pattern, b *ast.BlockStmt) bool {
	if len(pattern.List) == 1 {
		if x, ok := pattern.List[0].(*ast.ExprStmt); ok {
			if letter, ok := x.X.(*ast.Ident); ok && isLetter(letter.Name) {
				return m.is(letter.Name, b.Lbrace+1, b.Rbrace)
			}
		}
	}
	return len(pattern.List) == 0 || m.value(reflect.ValueOf(pattern.List), reflect.ValueOf(b.List))
}

// value compares parts of trees. Positions and comments do not count.
func (m *matcher) value(p, v reflect.Value) bool {
	switch p.Kind() {
	case reflect.Interface, reflect.Pointer:
		if p.IsNil() || v.IsNil() {
			return p.IsNil() == v.IsNil()
		}
		switch n := p.Interface().(type) {
		case *ast.BlockStmt:
			b, ok := v.Interface().(*ast.BlockStmt)
			return ok && m.block(n, b)
		case ast.Expr:
			// The field of a selector is a name, and no expression.
			_, isName := p.Interface().(*ast.Ident)
			if x, ok := v.Interface().(ast.Expr); ok && (p.Kind() == reflect.Interface || !isName) {
				return m.expr(n, x)
			}
		case *ast.CommentGroup:
			return true
		}
		p, v = p.Elem(), v.Elem()
		return p.Type() == v.Type() && m.value(p, v)
	case reflect.Struct:
		for i := range p.NumField() {
			if !m.value(p.Field(i), v.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Slice:
		if p.Len() != v.Len() {
			return false
		}
		for i := range p.Len() {
			if !m.value(p.Index(i), v.Index(i)) {
				return false
			}
		}
		return true
	}
	return p.Type() == reflect.TypeFor[token.Pos]() || p.Equal(v)
}

// words returns the names and literals of a node, but for letters.
func words(n ast.Node) map[string]bool {
	all := map[string]bool{}
	ast.Inspect(n, func(n ast.Node) bool {
		if name, ok := n.(*ast.Ident); ok && !isLetter(name.Name) {
			all[name.Name] = true
		} else if literal, ok := n.(*ast.BasicLit); ok {
			all[literal.Value] = true
		}
		return true
	})
	return all
}

// candidates lists where else the pattern is found in the package, and the statements of the
// declaration that have the most words in common with it.
func (p pattern) candidates(in *declaration, all []declaration) string {
	found, hits := []string{}, map[string]int{}
	add := func(at place, n int) {
		text, _, _ := strings.Cut(at.String(), "\n")
		text = "\n\t" + at.in.head + ": " + text
		if hits[text] == 0 {
			found = append(found, text)
		}
		hits[text] += n
	}
	for i := range all {
		for _, elsewhere := range p.places(&all[i], names{}) {
			add(elsewhere, 1)
		}
	}
	for _, part := range p {
		wanted := words(part)
		ast.Inspect(in.node, func(n ast.Node) bool {
			if stmt, ok := n.(ast.Stmt); ok {
				for word := range words(stmt) {
					if _, isBlock := n.(*ast.BlockStmt); wanted[word] && !isBlock {
						add(place{in, stmt, nil}, 1)
					}
				}
			}
			return true
		})
	}
	slices.SortStableFunc(found, func(a, b string) int { return cmp.Compare(hits[b], hits[a]) })
	return cmp.Or(strings.Join(found[:min(len(found), 6)], ""), " none")
}

// similar lists the declarations with the same name or the same receiver, or all of them.
func similar(all []declaration, wanted *head) string {
	var some, every strings.Builder
	for _, d := range all {
		every.WriteString("\n\t" + d.head)
		if strings.HasSuffix(d.head, " "+wanted.name) || d.head == wanted.name ||
			wanted.receiver != "" && strings.HasPrefix(d.head, "("+wanted.receiver+") ") {
			some.WriteString("\n\t" + d.head)
		}
	}
	return cmp.Or(some.String(), every.String(), " nothing")
}

// lines lists places.
func lines(results map[string]place) string {
	var list []string
	for _, p := range results {
		list = append(list, "\n\t"+p.String())
	}
	slices.Sort(list)
	return strings.Join(list, "")
}
