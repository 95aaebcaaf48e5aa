package secret

import (
	"fmt"
	"io"
	"log/slog"
)

// hidden is what a Value prints as.
const hidden = "[secret]"

// Value is a secret. It prints as [secret]; the zero Value is empty.
type Value struct {
	// A pointer: fmt cannot call the methods of an unexported field, and prints what it has. Of a
	// pointer that is the address.
	text *string
}

func newValue(text string) Value { return Value{&text} }

// Reveal returns the secret.
func (v Value) Reveal() string {
	if v.text == nil {
		return ""
	}
	return *v.text
}

// Format prints [secret] for each verb.
func (v Value) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hidden) }

// String returns [secret].
func (v Value) String() string { return hidden }

// GoString returns [secret].
func (v Value) GoString() string { return hidden }

// MarshalText returns [secret].
func (v Value) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// MarshalJSON returns "[secret]".
func (v Value) MarshalJSON() ([]byte, error) { return []byte(`"` + hidden + `"`), nil }

// LogValue returns [secret].
func (v Value) LogValue() slog.Value { return slog.StringValue(hidden) }
