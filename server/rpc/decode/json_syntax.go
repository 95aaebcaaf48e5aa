package decode

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"unicode/utf8"

	"runlog/proto/contract"
)

// explainSyntax describes why a body is not exactly one JSON value.
func explainSyntax(body []byte) *contract.Error {
	if len(bytes.TrimSpace(body)) == 0 {
		return refuse("", "the body is empty: send a JSON object")
	}
	err := json.Unmarshal(body, new(json.RawMessage))
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return refuse("", "the body is not JSON: %v", err)
	}
	// The offset includes the wrong byte.
	at := max(0, int(syntax.Offset)-1)
	d := json.NewDecoder(bytes.NewReader(body))
	switch err := d.Decode(new(json.RawMessage)); {
	case bytes.HasPrefix(body, []byte("\ufeff")):
		return refuse("", "the body begins with a byte order mark: send UTF-8 without one")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return refuse("", "the body is not JSON: it ends within a value, after %d bytes", len(body))
	case err == nil && at < len(body) && (body[at] == '{' || body[at] == '['):
		return refuse("", "the body is more than one JSON document: send one object; the events of a run go into its events array")
	}
	line := 1 + bytes.Count(body[:at], []byte{'\n'})
	column := 1 + utf8.RuneCount(body[bytes.LastIndexByte(body[:at], '\n')+1:at])
	e := refuse("", "the body is not JSON: line %d, column %d (byte %d): %s", line, column, at, syntax.Error())
	e.Metadata["offset"], e.Metadata["line"], e.Metadata["column"] = strconv.Itoa(at), strconv.Itoa(line), strconv.Itoa(column)
	return e
}
