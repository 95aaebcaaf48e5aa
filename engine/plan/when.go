package plan

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"runlog/proto/contract/jsontext"
)

// Status is how a step has ended.
type Status string

// The statuses.
const (
	Success Status = "SUCCESS"
	Failed  Status = "FAILED"
	Skipped Status = "SKIPPED"
)

// anyStatus in a condition is every one of them.
const anyStatus Status = "ANY"

// Condition is what must be true of a step that another one depends on. Its parts must all hold.
type Condition struct {
	Step string // one of DependsOn
	// Status that the step has. ANY: any. Empty: SUCCESS. With it the step need not have succeeded,
	// if the condition says so.
	Status Status
	// Output is a JSON Pointer (RFC 6901) into the output of the step, for what follows.
	Output string
	Equals json.RawMessage   // nil: not compared
	In     []json.RawMessage // nil: not compared
	Exists *bool             // nil: not asked
}

func (d *decoder) when(at *place, value []byte, s *Step) {
	s.When = []Condition{}
	d.array(at, value, 1, maxWhen, func(at *place, value []byte) {
		var c Condition
		var status string
		asked := 0
		is := d.object(at, value, []member{
			{"step", true, d.text(&c.Step, nil)},
			{"status", false, d.text(&status, func(text string) string {
				switch Status(text) {
				case Success, Failed, Skipped, anyStatus:
					return ""
				}
				return "is " + quote(text) + ": write SUCCESS, FAILED, SKIPPED or ANY"
			})},
			{"output", false, d.text(&c.Output, pointerFault)},
			{"equals", false, func(_ *place, value []byte) { c.Equals = value; asked++ }},
			{"in", false, func(at *place, value []byte) {
				c.In = []json.RawMessage{}
				asked++
				d.array(at, value, 1, maxItems, func(_ *place, value []byte) { c.In = append(c.In, value) })
			}},
			{"exists", false, func(at *place, value []byte) {
				asked++
				switch string(value) {
				case "true", "false":
					yes := string(value) == "true"
					c.Exists = &yes
				default:
					d.add(at, "is %s: true or false is expected", show(value))
				}
			}},
		})
		if c.Status = Status(status); is && status == "" && asked == 0 {
			d.add(at, "says nothing: write status, equals, in or exists")
		}
		s.When = append(s.When, c)
	})
}

const maxPointer = 1 << 10

func pointerFault(text string) string {
	if len(text) > maxPointer || text != "" && text[0] != '/' {
		return "is " + quote(text) + ": write a JSON Pointer, such as /report/rows"
	}
	return ""
}

// holds reports whether a condition is true of the end of its step.
func (c *Condition) holds(end *Result) bool {
	switch c.Status {
	case anyStatus:
	case "":
		if end.Status != Success {
			return false
		}
	default:
		if end.Status != c.Status {
			return false
		}
	}
	if c.Equals == nil && c.In == nil && c.Exists == nil {
		return true
	}
	value, there := lookup(end.Output, c.Output)
	if c.Exists != nil && *c.Exists != there {
		return false
	}
	if c.Equals != nil && (!there || !sameJSON(value, c.Equals)) {
		return false
	}
	if c.In != nil {
		for _, one := range c.In {
			if there && sameJSON(value, one) {
				return true
			}
		}
		return false
	}
	return true
}

var pointerUnescapes = strings.NewReplacer("~1", "/", "~0", "~")

// lookup returns the value that a JSON Pointer leads to. The output is valid JSON, or empty.
func lookup(output json.RawMessage, pointer string) (value json.RawMessage, there bool) {
	value = bytes.TrimSpace(output)
	if len(value) == 0 {
		value = json.RawMessage("null")
	}
	for pointer != "" {
		name, rest, more := strings.Cut(pointer[1:], "/")
		if pointer = ""; more {
			pointer = "/" + rest
		}
		if value, there = child(value, pointerUnescapes.Replace(name)); !there {
			return nil, false
		}
	}
	return value, true
}

func child(value []byte, name string) (json.RawMessage, bool) {
	switch value[0] {
	case '{':
		for c := jsontext.Members(value); ; {
			key, v, ok := c.Member()
			if !ok {
				return nil, false
			}
			if string(key) == name {
				return v, true
			}
		}
	case '[':
		n, err := strconv.ParseUint(name, 10, 32)
		if err != nil || name != strconv.FormatUint(n, 10) {
			return nil, false
		}
		c := jsontext.Elements(value)
		for i := uint64(0); ; i++ {
			v, ok := c.Element()
			if !ok {
				return nil, false
			}
			if i == n {
				return v, true
			}
		}
	}
	return nil, false
}

// sameJSON reports whether two values are the same: numbers by their value as a double, or by their
// text, and objects in any order of their members.
func sameJSON(a, b []byte) bool {
	switch {
	case a[0] != b[0] && (!isNumber(a) || !isNumber(b)):
		return false
	case a[0] == '"':
		return jsontext.Text(a) == jsontext.Text(b)
	case isNumber(a):
		if string(a) == string(b) {
			return true
		}
		x, err := strconv.ParseFloat(string(a), 64)
		y, err2 := strconv.ParseFloat(string(b), 64)
		return err == nil && err2 == nil && x == y
	case a[0] == '[':
		x, y := jsontext.Elements(a), jsontext.Elements(b)
		for {
			v, ok := x.Element()
			w, ok2 := y.Element()
			if !ok || !ok2 {
				return ok == ok2
			}
			if !sameJSON(v, w) {
				return false
			}
		}
	case a[0] == '{':
		return sameMembers(a, b)
	}
	return string(a) == string(b)
}

func isNumber(value []byte) bool { return value[0] == '-' || value[0] >= '0' && value[0] <= '9' }

func sameMembers(a, b []byte) bool {
	of := map[string][]byte{}
	for c := jsontext.Members(a); ; {
		name, v, ok := c.Member()
		if !ok {
			break
		}
		of[string(name)] = v
	}
	n := 0
	for c := jsontext.Members(b); ; n++ {
		name, v, ok := c.Member()
		if !ok {
			return n == len(of)
		}
		if w, there := of[string(name)]; !there || !sameJSON(w, v) {
			return false
		}
	}
}
