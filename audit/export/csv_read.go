package export

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"runlog/proto/contract"
)

// rowReader reads the cells of one row. raw and text have the same bytes, until a quoted cell is
// read from raw.
type rowReader struct {
	raw   []byte
	text  string
	pos   int
	fault string
}

// parseRow parses a row of appendRow, without its line feed, and returns its fault. The record
// shares its texts with text and its payload with raw, which parseRow changes.
func parseRow(raw []byte, text string, r *Record) (fault string) {
	*r = Record{}
	if !utf8.ValidString(text) {
		return "is not valid UTF-8"
	}
	c := rowReader{raw: raw, text: text}
	for k := range columns {
		if k > 0 && !c.comma() {
			return fmt.Sprintf("has %d columns, not %d, or text behind a quoted one", k, len(columns))
		}
		if k == payloadColumn {
			r.Payload = c.payload()
			break
		}
		cell := c.cell()
		if c.fault != "" {
			break
		}
		if want := setCell(k, cell, r); want != "" {
			return fmt.Sprintf("%s is not %s", columns[k], want)
		}
	}
	if c.fault == "" && c.pos < len(text) {
		return fmt.Sprintf("goes on behind its %d columns", len(columns))
	}
	return c.fault
}

func (c *rowReader) comma() bool {
	if c.pos < len(c.text) && c.text[c.pos] == ',' {
		c.pos++
		return true
	}
	return false
}

// cell takes a cell.
func (c *rowReader) cell() string {
	if c.pos < len(c.text) && c.text[c.pos] == '"' {
		quoted := c.quoted()
		return strings.ReplaceAll(quoted, `""`, `"`)
	}
	rest := c.text[c.pos:]
	if i := strings.IndexByte(rest, ','); i >= 0 {
		rest = rest[:i]
	}
	if strings.IndexByte(rest, '"') >= 0 {
		c.fault = fmt.Sprintf("has a quote within a cell at byte %d", c.pos)
	}
	c.pos += len(rest)
	return rest
}

// quoted takes a quoted cell and returns it without its own quotes, those within it still doubled.
func (c *rowReader) quoted() string {
	from := c.pos + 1
	for i := from; ; {
		n := strings.IndexByte(c.text[i:], '"')
		if n < 0 {
			c.fault = fmt.Sprintf("has no end of the quoted cell at byte %d", from-1)
			c.pos = len(c.text)
			return ""
		}
		if i += n; i+1 < len(c.text) && c.text[i+1] == '"' {
			i += 2
			continue
		}
		c.pos = i + 1
		return c.text[from:i]
	}
}

// payload takes the last cell without a copy: it replaces doubled quotes in place.
func (c *rowReader) payload() []byte {
	from := c.pos
	if from >= len(c.text) || c.text[from] != '"' {
		c.fault = "has no quoted payload"
		return nil
	}
	quoted := c.quoted()
	if c.fault != "" {
		return nil
	}
	src := c.raw[from+1 : from+1+len(quoted)]
	n := bytes.IndexByte(src, '"')
	if n < 0 {
		return src
	}
	for rest := src[n:]; ; {
		// rest begins with the first quote of two.
		src[n] = '"'
		n++
		rest = rest[2:]
		i := bytes.IndexByte(rest, '"')
		if i < 0 {
			n += copy(src[n:], rest)
			return src[:n:n]
		}
		n += copy(src[n:], rest[:i])
		rest = rest[i:]
	}
}

// setCell sets a column's field of a record, or returns the expected form.
func setCell(k int, cell string, r *Record) (want string) {
	switch {
	case cell == "" && k == originalAtColumn:
		return ""
	case cell != "" && k == sourceColumn && r.Original.PersistedAt == 0:
		return wantNoSource
	}
	return parseField(&fields[k], cell, (*contract.Recorded)(r))
}

// parseNames reads names with single spaces between them.
func parseNames(absent *contract.Absent, cell string) bool {
	for cell != "" {
		name, rest, more := strings.Cut(cell, " ")
		if !contract.Inherit(absent, name) || more && rest == "" {
			return false
		}
		cell = rest
	}
	return true
}
