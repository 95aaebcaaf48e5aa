package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Rule is a compiled schema, or a part of one: what it demands of a JSON value, in a form that runs
// over raw bytes. Inside a Rule, a nil *Rule demands nothing.
//
// The keywords are those that the payload schemas use, and no others: type, required, properties,
// items, enum and const of strings, minLength 1, minimum 0, the two patterns of forms.go, format
// date-time, anyOf of required alone, and $ref to $defs. Compile refuses all others.
//
// A keyword of our own, x-expected, holds the schema that an optional field should fit (ENV-9). It
// is an annotation: to other programs it allows every value.
type Rule struct {
	// kinds holds the JSON types that the value may have.
	kinds kinds

	// For an object. members is sorted by the length of the names; those of length n are at
	// byLength[n] up to byLength[n+1]. A set of members has one bit for each index in members.
	members  []memberRule
	byLength [maxMemberName + 2]uint8
	required uint64
	either   []uint64 // the value must have all members of one of these sets; empty: no demand
	order    []int    // the required members in the order of the schema

	items *Rule // for the elements of an array

	// For a string.
	words []string
	form  *textForm
	// nonEmpty is minLength 1.
	nonEmpty bool

	// notNegative is minimum 0, for a number.
	notNegative bool

	// optional is set on what stands under x-expected: the value may have any form, and Faults only
	// remarks on one that is not expected.
	optional bool
}

type memberRule struct {
	name string
	rule *Rule
}

// kinds is a set of JSON types, as JSON Schema divides them.
type kinds uint8

const (
	kindObject kinds = 1 << iota
	kindArray
	kindString
	kindNumber
	kindInteger // a number without a fraction, however it is written
	kindBoolean
	kindNull

	anyKind = kindObject | kindArray | kindString | kindNumber | kindInteger | kindBoolean | kindNull
)

// kindNames has the name of each type, by its bit, in a schema and in a fault.
var kindNames = [...]struct{ schema, prose string }{
	{"object", "an object"}, {"array", "an array"}, {"string", "a string"}, {"number", "a number"},
	{"integer", "a whole number"}, {"boolean", "true or false"}, {"null", "null"},
}

// Limits of a schema.
const (
	maxMembers    = 64 // members of an object, the bits of a set
	maxMemberName = 31 // bytes of a member's name
	maxNested     = 16 // steps into a schema; a schema that refers to itself exceeds it
)

// node is a schema as it is written. Keywords that have no field here are refused.
type node struct {
	Schema      string `json:"$schema"`
	ID          string `json:"$id"`
	Title       string `json:"title"`
	Description string `json:"description"`

	Ref        string           `json:"$ref"`
	Defs       map[string]*node `json:"$defs"`
	Type       typeNode         `json:"type"`
	Properties map[string]*node `json:"properties"`
	Required   []string         `json:"required"`
	AnyOf      []*node          `json:"anyOf"`
	Items      *node            `json:"items"`
	Enum       []string         `json:"enum"`
	Const      *string          `json:"const"`
	MinLength  *int             `json:"minLength"`
	Minimum    *int             `json:"minimum"`
	Pattern    string           `json:"pattern"`
	Format     string           `json:"format"`
	Expected   *node            `json:"x-expected"`
}

// typeNode is the keyword type: one name or several.
type typeNode []string

func (t *typeNode) UnmarshalJSON(b []byte) error {
	if b[0] == '[' {
		return json.Unmarshal(b, (*[]string)(t))
	}
	*t = make(typeNode, 1)
	return json.Unmarshal(b, &(*t)[0])
}

// Compile compiles the text of a payload's schema. It fails for a keyword that a Rule cannot
// express.
func Compile(text []byte) (*Rule, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	root := &node{}
	if err := d.Decode(root); err != nil {
		return nil, err
	}
	c := compiler{defs: root.Defs}
	root.Defs = nil
	r, err := c.compile(root, 0)
	switch {
	case err != nil:
		return nil, err
	case r == nil || r.kinds != kindObject:
		return nil, errors.New("a payload is an object")
	}
	return r, nil
}

type compiler struct {
	defs map[string]*node
}

func (c *compiler) compile(n *node, depth int) (*Rule, error) {
	switch {
	case n == nil:
		return nil, nil
	case depth > maxNested:
		return nil, errors.New("nested too deep, or without end")
	case n.Defs != nil:
		return nil, errors.New("$defs below the top")
	case n.Ref != "":
		return c.follow(n, depth)
	case n.Expected != nil:
		return c.expect(n, depth)
	}
	r := &Rule{}
	for _, step := range []func(*Rule, *node, int) error{c.kinds, c.object, c.array, c.text, c.number} {
		if err := step(r, n, depth); err != nil {
			return nil, err
		}
	}
	if r.isEmpty() {
		return nil, nil
	}
	return r, nil
}

// follow compiles the target of a $ref. Only a description may stand beside the $ref.
func (c *compiler) follow(n *node, depth int) (*Rule, error) {
	target, ok := c.defs[strings.TrimPrefix(n.Ref, "#/$defs/")]
	if !ok {
		return nil, fmt.Errorf("$ref %s leads nowhere", n.Ref)
	}
	beside := *n
	beside.Ref, beside.Description = "", ""
	if r, err := c.compile(&beside, depth+1); err != nil || r != nil {
		return nil, errors.Join(fmt.Errorf("$ref %s with other keywords beside it", n.Ref), err)
	}
	return c.compile(target, depth+1)
}

// expect compiles an x-expected. Only a description may stand beside it.
func (c *compiler) expect(n *node, depth int) (*Rule, error) {
	beside := *n
	beside.Expected, beside.Description = nil, ""
	if r, err := c.compile(&beside, depth+1); err != nil || r != nil {
		return nil, errors.Join(errors.New("x-expected with other keywords beside it"), err)
	}
	r, err := c.compile(n.Expected, depth+1)
	if r != nil {
		r.optional = true
	}
	return r, err
}

func (c *compiler) kinds(r *Rule, n *node, _ int) error {
	for _, name := range n.Type {
		bit := slices.IndexFunc(kindNames[:], func(k struct{ schema, prose string }) bool { return k.schema == name })
		if bit < 0 {
			return fmt.Errorf("type %q", name)
		}
		r.kinds |= 1 << bit
	}
	if r.kinds == 0 {
		r.kinds = anyKind
	}
	if r.kinds&kindNumber != 0 {
		r.kinds |= kindInteger
	}
	return nil
}

func (c *compiler) object(r *Rule, n *node, depth int) error {
	for name, property := range n.Properties {
		member, err := c.compile(property, depth+1)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		r.members = append(r.members, memberRule{name, member})
	}
	names := slices.Clone(n.Required)
	for _, alternative := range n.AnyOf {
		if err := onlyRequired(alternative); err != nil {
			return err
		}
		names = append(names, alternative.Required...)
	}
	for _, name := range names {
		if _, ok := n.Properties[name]; !ok {
			return fmt.Errorf("requires %q, which has no entry in properties", name)
		}
	}
	if err := r.indexMembers(); err != nil {
		return err
	}
	r.required, r.order = r.setOf(n.Required)
	for _, alternative := range n.AnyOf {
		set, _ := r.setOf(alternative.Required)
		r.either = append(r.either, set)
	}
	return nil
}

// onlyRequired refuses an alternative of anyOf with another keyword than required.
func onlyRequired(n *node) error {
	if n == nil || len(n.Required) == 0 {
		return errors.New("anyOf with an alternative that has no required")
	}
	rest := *n
	rest.Required = nil
	if r, err := (&compiler{}).compile(&rest, 0); err != nil || r != nil {
		return errors.Join(errors.New("anyOf with other keywords than required"), err)
	}
	return nil
}

// indexMembers sorts the members for find.
func (r *Rule) indexMembers() error {
	if len(r.members) > maxMembers {
		return fmt.Errorf("more than %d members", maxMembers)
	}
	slices.SortFunc(r.members, func(a, b memberRule) int {
		if d := len(a.name) - len(b.name); d != 0 {
			return d
		}
		return strings.Compare(a.name, b.name)
	})
	for _, m := range r.members {
		// Printable ASCII without these four is compared as it is written, and needs no escape in a
		// JSON Pointer.
		unusual := func(c rune) bool { return c < ' ' || c >= 0x7f || strings.ContainsRune(`"\~/`, c) }
		if len(m.name) > maxMemberName || strings.ContainsFunc(m.name, unusual) {
			return fmt.Errorf("member name %q", m.name)
		}
		for n := len(m.name) + 1; n < len(r.byLength); n++ {
			r.byLength[n]++
		}
	}
	return nil
}

// setOf returns the set of the named members, and their indexes in the order of names.
func (r *Rule) setOf(names []string) (set uint64, order []int) {
	for _, name := range names {
		k := r.find([]byte(name))
		set |= 1 << k
		order = append(order, k)
	}
	return set, order
}

func (c *compiler) array(r *Rule, n *node, depth int) (err error) {
	if r.items, err = c.compile(n.Items, depth+1); err != nil {
		return fmt.Errorf("items: %w", err)
	}
	return nil
}

func (c *compiler) text(r *Rule, n *node, _ int) error {
	r.words = n.Enum
	if n.Const != nil {
		r.words = append(r.words, *n.Const)
	}
	if n.Enum != nil && n.Const != nil || n.Enum != nil && len(n.Enum) == 0 {
		return errors.New("empty enum, or enum beside const")
	}
	if r.words != nil {
		// The words are strings, so no other type is valid.
		r.kinds &= kindString
		if r.kinds == 0 || strings.ContainsAny(strings.Join(r.words, ""), `"\`) {
			return errors.New("enum or const of another type than string, or with a string that JSON escapes")
		}
	}
	if n.MinLength != nil {
		if *n.MinLength != 1 {
			return errors.New("minLength other than 1")
		}
		r.nonEmpty = true
	}
	if n.Pattern == "" && n.Format == "" {
		return nil
	}
	for i := range textForms {
		if f := &textForms[i]; f.pattern == n.Pattern && f.format == n.Format {
			r.form = f
			return nil
		}
	}
	return fmt.Errorf("pattern %q with format %q", n.Pattern, n.Format)
}

func (c *compiler) number(r *Rule, n *node, _ int) error {
	if n.Minimum != nil {
		if *n.Minimum != 0 {
			return errors.New("minimum other than 0")
		}
		r.notNegative = true
	}
	return nil
}

func (r *Rule) isEmpty() bool {
	return r.kinds == anyKind && len(r.members) == 0 && r.items == nil && r.words == nil && r.form == nil && !r.nonEmpty && !r.notNegative
}

// find returns the index of a member, and -1 for a member that the rule does not know.
func (r *Rule) find(name []byte) int {
	if len(name) > maxMemberName {
		return -1
	}
	for k := int(r.byLength[len(name)]); k < int(r.byLength[len(name)+1]); k++ {
		if r.members[k].name == string(name) {
			return k
		}
	}
	return -1
}
