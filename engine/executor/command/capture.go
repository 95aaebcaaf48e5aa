package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"runlog/engine/secret"
)

// counter counts the bytes of both streams.
type counter struct {
	n     atomic.Int64
	limit int64 // 0: none
	over  func()
}

func (c *counter) add(n int) {
	if total := c.n.Add(int64(n)); c.limit > 0 && total > c.limit {
		c.over()
	}
}

// capture keeps parts of a stream. It has one writer.
type capture struct {
	count   *counter
	bytes   int64
	whole   []byte // up to maxJSON bytes, secrets included
	maxJSON int
	clean   *secret.Writer
	ends    *ends
}

func newCapture(redactor *secret.Redactor, keep, maxJSON int, count *counter) *capture {
	e := &ends{limit: keep}
	return &capture{count: count, maxJSON: maxJSON, clean: redactor.NewWriter(e), ends: e}
}

// Write takes everything: a process must not block on a full pipe.
func (c *capture) Write(p []byte) (int, error) {
	c.bytes += int64(len(p))
	if c.bytes <= int64(c.maxJSON) {
		c.whole = append(c.whole, p...)
	} else {
		c.whole = nil
	}
	_, _ = c.clean.Write(p) // ends takes everything.
	c.count.add(len(p))
	return len(p), nil
}

func (c *capture) close() { _ = c.clean.Close() }

// text returns the head and the tail of the stream without secrets.
func (c *capture) text() string { return c.ends.text() }

// output returns the stream as the output of a step. The registry takes its secrets out if it is
// JSON, because a text without them may be none.
func (c *capture) output() json.RawMessage {
	if utf8.Valid(c.whole) && json.Valid(c.whole) {
		return c.whole
	}
	text, _ := json.Marshal(struct { // Texts and numbers cannot fail.
		Text      string `json:"text"`
		Bytes     int64  `json:"bytes"`
		Truncated bool   `json:"truncated"`
	}{c.text(), c.bytes, c.ends.left > 0})
	return text
}

// ends keeps the first and the last bytes that are written to it.
type ends struct {
	limit      int // of each
	head, tail []byte
	left       int64 // out
}

func (e *ends) Write(p []byte) (int, error) {
	n := min(len(p), e.limit-len(e.head))
	e.head = append(e.head, p[:n]...)
	rest := p[n:]
	// The tail grows to twice its length before it is moved: each byte is moved once.
	if over := len(rest) - e.limit; over > 0 {
		e.left += int64(len(e.tail)) + int64(over)
		e.tail = append(e.tail[:0], rest[over:]...)
		return len(p), nil
	}
	e.tail = append(e.tail, rest...)
	if len(e.tail) > 2*e.limit {
		e.cut()
	}
	return len(p), nil
}

func (e *ends) cut() {
	if over := len(e.tail) - e.limit; over > 0 {
		e.left += int64(over)
		e.tail = e.tail[:copy(e.tail, e.tail[over:])]
	}
}

func (e *ends) text() string {
	e.cut()
	head, tail, middle := e.head, e.tail, ""
	if e.left > 0 {
		// Half of a word may be half of a secret, which no scanner knows.
		head = head[:bytes.LastIndexAny(head, space)+1]
		tail = wholeWords(tail)
		middle = fmt.Sprintf("\n[%d bytes are left out]\n", e.left+int64(len(e.head)-len(head)+len(e.tail)-len(tail)))
	}
	return strings.ToValidUTF8(string(head)+middle+string(tail), "\uFFFD")
}

const space = " \t\r\n"

// wholeWords returns the end of a text from its first space on.
func wholeWords(text []byte) []byte {
	if i := bytes.IndexAny(text, space); i >= 0 {
		return text[i:]
	}
	return nil
}
