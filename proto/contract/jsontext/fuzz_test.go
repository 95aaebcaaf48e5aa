package jsontext

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"unicode/utf8"
)

// FuzzScan compares the scanner with encoding/json: which texts are JSON, where values end, and
// what a walk over a checked text finds. Any other text must not bring a walk down.
func FuzzScan(f *testing.F) {
	f.Add(samplePayload)
	for _, text := range []string{
		`{"a":1.0,"b":["é",{}]}`, `{"b":["\u00e9",{}],"a":10e-1}`, `{"a":1,"a":[null,true]}`, `[1,-0.5e+10,"x",{"a":[]}]`, ` 7 `, `"\ud800"`, `1e`, `[1,]`, `{"a":1]`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		checkAgainstEncodingJSON(t, text)
		walkAny(text, 0)

		from := SkipSpace(text, 0)
		end, fault := ScanValue(text, from, MaxDepth+1)
		if fault == FaultDepth {
			return
		}
		valid := fault == 0 && SkipSpace(text, end) == len(text)
		if want := json.Valid(text) && utf8.Valid(text); valid != want {
			t.Fatalf("%q: valid %v (%s), encoding/json says %v", text, valid, fault, want)
		}
		if !valid {
			return
		}
		if skipped := SkipValue(text, from); skipped != end {
			t.Fatalf("%q: SkipValue ends at %d, ScanValue at %d", text, skipped, end)
		}
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		var want any
		if err := d.Decode(&want); err != nil {
			t.Fatal(err)
		}
		if got := decoded(text[from:end]); !reflect.DeepEqual(got, want) {
			t.Fatalf("%q: walking finds %v, encoding/json %v", text, got, want)
		}
	})
}

// decoded is what a walk makes of a checked value. Of duplicate members the last counts.
func decoded(value []byte) any {
	switch value[0] {
	case '{':
		object := map[string]any{}
		c, quoted := Members(value), Members(value)
		for name, v, ok := c.Member(); ok; name, v, ok = c.Member() {
			q, same, _ := quoted.Quoted()
			if &same[0] != &v[0] || Unquote(q) != string(name) {
				panic("the two walks differ")
			}
			object[Text(q)] = decoded(v)
		}
		return object
	case '[':
		list := []any{}
		c := Elements(value)
		for v, ok := c.Element(); ok; v, ok = c.Element() {
			list = append(list, decoded(v))
		}
		return list
	case '"':
		return Text(value)
	case 't', 'f':
		return value[0] == 't'
	case 'n':
		return nil
	}
	return json.Number(value)
}

// walkAny walks over bytes that may be anything.
func walkAny(value []byte, depth int) {
	if depth > 20 {
		return
	}
	c := Members(value)
	for name, v, ok := c.Member(); ok; name, v, ok = c.Member() {
		_ = name
		walkAny(v, depth+1)
	}
	c = Elements(value)
	for v, ok := c.Element(); ok; v, ok = c.Element() {
		walkAny(v, depth+1)
	}
	Lookup(value, "a")
	Text(value)
	if len(value) > 0 {
		Show(value)
	}
}
