package contract

import (
	"strconv"

	"runlog/proto/contract/jsontext"
	"runlog/proto/contract/secrets"
)

// maxSecretPath bounds the path to a secret that an error repeats, in bytes.
const maxSecretPath = 256

// secret refuses JSON text that has what looks like a secret, if the options do. The violation has
// the kind and the place, and never the text.
func (c *checker) secret(field string, b []byte) {
	if c.o.Secret == nil {
		return
	}
	kind, at := secrets.FindJSON(b)
	if kind == "" || !c.o.Secret(c.e.RunID, kind) {
		return
	}
	c.bad = append(c.bad, Violation{
		Field: field + pointerTo(b, at), Reason: ReasonPayloadHasSecret, Secret: kind,
		Description: "looks like a secret (" + string(kind) + "), and events are kept forever: store it in a secret store, and send a reference to it",
	})
}

// pointerTo returns the JSON Pointer to the innermost value at an offset of a JSON text. The path
// ends before a name that has the offset, or that looks like a secret itself.
func pointerTo(value []byte, at int) string {
	path := ""
	for {
		name, inner, begin, ok := partAt(value, at)
		next := path + "/" + pointerEscapes.Replace(name)
		if kind, _ := secrets.Find([]byte(next)); !ok || kind != "" || len(next) > maxSecretPath {
			return path
		}
		path, value, at = next, inner, at-begin
	}
}

// partAt returns the member or the element of a JSON value at an offset, and where it begins.
func partAt(value []byte, at int) (name string, part []byte, begin int, ok bool) {
	members, elements := jsontext.Members(value), jsontext.Elements(value)
	for {
		n, v, more := members.Member()
		if !more {
			break
		}
		if end := members.Pos(); at < end {
			return string(n), v, end - len(v), at >= end-len(v)
		}
	}
	for i := 0; ; i++ {
		v, more := elements.Element()
		if !more {
			return "", nil, 0, false
		}
		if end := elements.Pos(); at < end {
			return strconv.Itoa(i), v, end - len(v), at >= end-len(v)
		}
	}
}
