package attempt

import (
	"errors"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// ErrClosed ends the attempts that are under way when a sink is closed.
var ErrClosed = errors.New("sink: closed")

// PermanentError says that the sink will never take this event, for example because it is too
// large. Another attempt is useless.
type PermanentError struct{ Err error }

func (e *PermanentError) Error() string { return e.Err.Error() }
func (e *PermanentError) Unwrap() error { return e.Err }

// GoneError says that the endpoint wants no more events of the subscription.
type GoneError struct{ Err error }

func (e *GoneError) Error() string { return e.Err.Error() }
func (e *GoneError) Unwrap() error { return e.Err }

// BusyError says that the endpoint wants the next attempt after a time.
type BusyError struct {
	// After is from now, 0 to 24 hours.
	After time.Duration
	Err   error
}

func (e *BusyError) Error() string { return e.Err.Error() }
func (e *BusyError) Unwrap() error { return e.Err }

// Printable returns the beginning of a foreign text, at most limit bytes of it, with a blank for
// every run of bytes that cannot be printed. An ellipsis says that there was more.
func Printable(text string, limit int) string {
	cut := len(text) > limit
	if cut {
		text = text[:limit]
		// A character that was cut in two is left out.
		for i := 1; i <= min(len(text), utf8.UTFMax-1); i++ {
			if tail := text[len(text)-i:]; utf8.RuneStart(tail[0]) {
				if !utf8.FullRuneInString(tail) {
					text = text[:len(text)-i]
				}
				break
			}
		}
	}
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) || r == ' ' }), " ")
	if cut {
		text += "…"
	}
	return text
}
