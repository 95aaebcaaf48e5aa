package decode

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"strconv"
	"unicode/utf8"

	"runlog/proto/contract"
)

// What follows walks over JSON text that json.Valid has found well-formed, and gives parts of it as
// they are written. encoding/json itself would lose duplicates, broken text and places.

// members yields the names, with their quotes, and the values of an object, in order, duplicates
// included.
func members(object []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		for i := skipSpace(object, 1); object[i] != '}'; {
			end := skipValue(object, i)
			name := object[i:end]
			i = skipSpace(object, skipSpace(object, end)+len(":"))
			end = skipValue(object, i)
			if !yield(name, object[i:end]) {
				return
			}
			i = skipComma(object, end)
		}
	}
}

// elements yields the elements of an array.
func elements(array []byte) iter.Seq2[int, []byte] {
	return func(yield func(index int, value []byte) bool) {
		index := 0
		for i := skipSpace(array, 1); array[i] != ']'; index++ {
			end := skipValue(array, i)
			if !yield(index, array[i:end]) {
				return
			}
			i = skipComma(array, end)
		}
	}
}

func skipSpace(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r') {
		i++
	}
	return i
}

// skipComma goes to the next element, or to the bracket that closes.
func skipComma(text []byte, i int) int {
	if i = skipSpace(text, i); text[i] == ',' {
		i = skipSpace(text, i+1)
	}
	return i
}

// skipValue returns the end of the value that begins at i.
func skipValue(text []byte, i int) int {
	switch text[i] {
	case '"':
		return skipString(text, i)
	case '{', '[':
		for depth := 0; ; i++ {
			switch text[i] {
			case '"':
				i = skipString(text, i) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
		}
	default:
		for i < len(text) && !bytes.ContainsRune([]byte(",]} \n\t\r"), rune(text[i])) {
			i++
		}
		return i
	}
}

// skipString returns the end of the string that begins at i, or of the text when the string has
// none.
func skipString(text []byte, i int) int {
	i++
	for quote := -1; i < len(text); {
		if quote < i {
			n := bytes.IndexByte(text[i:], '"')
			if n < 0 {
				break
			}
			quote = i + n
		}
		n := bytes.IndexByte(text[i:quote], '\\')
		if n < 0 {
			return quote + 1
		}
		i += n + len(`\"`)
	}
	return len(text)
}

// unquote returns the text of a string. What no text has becomes U+FFFD.
func unquote(quoted []byte) string {
	var s string
	_ = json.Unmarshal(quoted, &s)
	return s
}

// explainSyntax says why a body is not one JSON value.
func explainSyntax(body []byte) *contract.Error {
	if len(bytes.TrimSpace(body)) == 0 {
		return refuse("", "the body is empty: send a JSON object")
	}
	err := json.Unmarshal(body, new(json.RawMessage))
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return refuse("", "the body is not JSON: %v", err)
	}
	// The offset counts the byte that is wrong.
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
