package proof

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// ErrStatement means that the text of a note is not the expected statement.
var ErrStatement = errors.New("proof: undecodable statement")

// Statement is the text of a note: a title, then lines of a name and a value each.
//
//	runlog export 1
//	cluster 0191a3c8f6b27d4e8f1a2b3c4d5e6f70
//	count 12
//
// Names are lower-case words joined by hyphens, and repeat only in lists. The order is part of a
// kind of statement; a statement with an unknown line is refused.
type Statement struct {
	Title string
	lines []line
	next  int
}

type line struct{ name, value string }

// Add adds a line. The value has no control characters: Quote texts that may.
func (s *Statement) Add(name, value string) *Statement {
	s.lines = append(s.lines, line{name, value})
	return s
}

// String returns the text, which ends in a line feed.
func (s *Statement) String() string {
	var b strings.Builder
	b.WriteString(s.Title)
	b.WriteByte('\n')
	for _, l := range s.lines {
		b.WriteString(l.name)
		b.WriteByte(' ')
		b.WriteString(l.value)
		b.WriteByte('\n')
	}
	return b.String()
}

// ParseStatement parses the output of String.
func ParseStatement(text string) (*Statement, error) {
	if !utf8.ValidString(text) || !strings.HasSuffix(text, "\n") {
		return nil, fmt.Errorf("%w: it is no text of lines", ErrStatement)
	}
	all := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	s := &Statement{Title: all[0]}
	for _, l := range all[1:] {
		name, value, ok := strings.Cut(l, " ")
		if !ok || name == "" {
			return nil, fmt.Errorf("%w: line %q has no value", ErrStatement, l)
		}
		s.Add(name, value)
	}
	return s, nil
}

// Expect begins to read a statement of a title.
func (s *Statement) Expect(title string) error {
	s.next = 0
	if s.Title != title {
		return fmt.Errorf("%w: it is %q, not %q", ErrStatement, s.Title, title)
	}
	return nil
}

// Has reports whether the next line has a name.
func (s *Statement) Has(name string) bool {
	return s.next < len(s.lines) && s.lines[s.next].name == name
}

// Take returns the value of the next line, which must have the name.
func (s *Statement) Take(name string) (string, error) {
	switch {
	case s.next == len(s.lines):
		return "", fmt.Errorf("%w: it ends before %q", ErrStatement, name)
	case !s.Has(name):
		return "", fmt.Errorf("%w: %q where %q must come", ErrStatement, s.lines[s.next].name, name)
	}
	s.next++
	return s.lines[s.next-1].value, nil
}

// End refuses a statement with further lines.
func (s *Statement) End() error {
	if s.next < len(s.lines) {
		return fmt.Errorf("%w: %q is not known", ErrStatement, s.lines[s.next].name)
	}
	return nil
}

// TakeNumber is Take for a decimal number.
func (s *Statement) TakeNumber(name string) (uint64, error) {
	text, err := s.Take(name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || strconv.FormatUint(n, 10) != text {
		return 0, fmt.Errorf("%w: %s %q is no number", ErrStatement, name, text)
	}
	return n, nil
}

// TakeTime is Take for a time, in nanoseconds since 1970.
func (s *Statement) TakeTime(name string) (int64, error) {
	text, err := s.Take(name)
	if err != nil {
		return 0, err
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || FormatTime(at.UnixNano()) != text {
		return 0, fmt.Errorf("%w: %s %q is no time of the form 2026-01-02T15:04:05.999999999Z", ErrStatement, name, text)
	}
	return at.UnixNano(), nil
}

// TakeText is Take for a text that Quote made.
func (s *Statement) TakeText(name string) (string, error) {
	quoted, err := s.Take(name)
	if err != nil {
		return "", err
	}
	var text string
	if json.Unmarshal([]byte(quoted), &text) != nil || Quote(text) != quoted {
		return "", fmt.Errorf("%w: %s %q is no JSON string", ErrStatement, name, quoted)
	}
	return text, nil
}

// FormatTime returns nanoseconds since 1970 as RFC 3339 in UTC, without trailing zeros of the
// second's fraction.
func FormatTime(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339Nano) }

// Quote returns a text as a JSON string.
func Quote(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string is always JSON
	}
	return string(b)
}
