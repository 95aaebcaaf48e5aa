package plan

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"runlog/proto/contract/jsontext"
	"runlog/proto/contract/secrets"
)

// maxFaults and maxFaultBytes bound the faults that an error lists, so that the event of a run has
// room for them. The others are counted.
const (
	maxFaults     = 100
	maxFaultBytes = 24 << 10
)

// shownFaults is how many faults the text of an error has.
const shownFaults = 5

// Fault is one thing that is wrong, and where.
type Fault struct {
	// Path is a JSON Pointer (RFC 6901) to the value. Empty: the whole text.
	Path    string `json:"path"`
	Message string `json:"message"`
}

// String returns both parts.
func (f Fault) String() string {
	if f.Path == "" {
		return f.Message
	}
	return f.Path + " " + f.Message
}

// InvalidError lists everything that is wrong with a plan, or with a reference to one (PLAN-4).
type InvalidError struct {
	What   string // plan, or plan reference
	Faults []Fault
	More   int // faults that the list has no place for
}

// Error returns the first faults.
func (e *InvalidError) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "plan: the %s has %d faults: correct them: ", e.What, len(e.Faults)+e.More)
	if len(e.Faults)+e.More == 1 {
		text.Reset()
		fmt.Fprintf(&text, "plan: the %s is invalid: ", e.What)
	}
	for i, f := range e.Faults[:min(len(e.Faults), shownFaults)] {
		if i > 0 {
			text.WriteString("; ")
		}
		text.WriteString(f.String())
	}
	if more := len(e.Faults) + e.More - shownFaults; more > 0 {
		fmt.Fprintf(&text, "; and %d more", more)
	}
	return text.String()
}

// Code is the reason of the contract.
func (*InvalidError) Code() string { return CodeInvalid }

// Retryable is false: the same bytes have the same faults.
func (*InvalidError) Retryable() bool { return false }

// MarshalJSON returns the error as an event has it, with the faults as its details.
func (e *InvalidError) MarshalJSON() ([]byte, error) {
	return marshal(failure{Category: categoryValidation, Code: CodeInvalid, Message: e.Error(), Details: struct {
		Faults []Fault `json:"faults"`
		More   int     `json:"more,omitempty"`
	}{e.Faults, e.More}})
}

// failure has the members of an error of an event in their order.
type failure struct {
	Category  string `json:"category"`
	Code      string `json:"code"`
	Message   string `json:"message"`
	Retryable bool   `json:"retryable"`
	Details   any    `json:"details,omitempty"`
}

// marshal returns JSON without the escapes for HTML.
func marshal(v any) ([]byte, error) {
	var text strings.Builder
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return []byte(strings.TrimSuffix(text.String(), "\n")), nil
}

// place is where a value stands: a member or an element of the value at its parent. nil: the whole
// text.
type place struct {
	parent *place
	name   string // of a member
	index  int    // of an element; -1: it is a member
}

func (p *place) member(name string) *place { return &place{parent: p, name: name, index: -1} }
func (p *place) element(i int) *place      { return &place{parent: p, index: i} }

// maxPathBytes bounds the path of a fault.
const maxPathBytes = 1 << 10

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// pointer returns the JSON Pointer to a place. It ends before a name that looks like a secret.
func (p *place) pointer() string {
	if p == nil {
		return ""
	}
	before := p.parent.pointer()
	if p.index >= 0 {
		return before + "/" + strconv.Itoa(p.index)
	}
	next := before + "/" + pointerEscapes.Replace(p.name)
	if kind, _ := secrets.Find([]byte(p.name)); kind != "" || len(next) > maxPathBytes {
		return before
	}
	return next
}

// faults gathers what is wrong.
type faults struct {
	list  []Fault
	more  int
	bytes int // of the list as JSON, at most
}

// add reports a fault.
func (f *faults) add(p *place, format string, args ...any) {
	if len(f.list) == maxFaults {
		f.more++
		return
	}
	next := Fault{p.pointer(), fmt.Sprintf(format, args...)}
	text, err := marshal(next)
	if err != nil || len(f.list) > 0 && f.bytes+len(text) > maxFaultBytes {
		f.more++
		return
	}
	f.list, f.bytes = append(f.list, next), f.bytes+len(text)
}

// err returns the faults as an error; nil: there are none.
func (f *faults) err(what string) error {
	if len(f.list) == 0 {
		return nil
	}
	return &InvalidError{What: what, Faults: f.list, More: f.more}
}

// show describes a JSON value in a fault, which must not repeat a secret.
func show(value []byte) string {
	if kind, _ := secrets.FindJSON(value); kind != "" {
		return "a secret"
	}
	return jsontext.Show(value)
}

// quote quotes a text in a fault, which must not repeat a secret.
func quote(text string) string {
	if kind, _ := secrets.Find([]byte(text)); kind != "" {
		return "(a secret)"
	}
	return jsontext.Quote(text)
}
