// Package output writes what the commands answer: text, tables, JSON lines, progress and errors.
//
// Answers go to Stdout. Everything that only a person reads (refused lines, progress, errors) goes
// to Stderr. Text that a producer wrote passes OneLine before it is shown: it must not move the
// cursor or begin a line.
package output

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"google.golang.org/protobuf/proto"
)

// Output is where a command writes, and in which format.
type Output struct {
	Stdout, Stderr io.Writer
	// StdoutWidth and StderrWidth are in columns; 0 means that the stream is no terminal.
	StdoutWidth, StderrWidth int
	// StdoutHeight is in lines; 0 means that it is not known.
	StdoutHeight int
	Format       Format
}

// Format is the value of the flag --output.
type Format string

// Formats of an answer.
const (
	Text Format = "table"
	JSON Format = "json"
)

// String returns the format by name; the zero value is the default.
func (f *Format) String() string {
	if *f == "" {
		*f = Text
	}
	return string(*f)
}

// Set takes the value from the command line.
func (f *Format) Set(value string) error {
	switch Format(value) {
	case Text, JSON:
		*f = Format(value)
		return nil
	default:
		return errors.New("want table or json")
	}
}

// Type names the value in the help.
func (f *Format) Type() string { return "format" }

// Tell writes what the command did: a sentence, or line as Object does.
func (o *Output) Tell(sentence string, line any) error {
	if o.Format == JSON {
		return o.Object(line)
	}
	_, err := fmt.Fprintln(o.Stdout, OneLine(sentence))
	return err
}

// Show writes what one thing is: its facts as Facts does, or line as Object does.
func (o *Output) Show(line any, facts ...[2]string) error {
	if o.Format == JSON {
		return o.Object(line)
	}
	out := bufio.NewWriter(o.Stdout)
	Facts(out, facts...)
	return out.Flush()
}

// Object writes one JSON object on a line: of a message in proto-JSON, else with the names of the
// tags.
func (o *Output) Object(line any) error {
	m, ok := line.(proto.Message)
	if !ok {
		return json.NewEncoder(o.Stdout).Encode(line)
	}
	text, err := JSONLine(m)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(o.Stdout, "%s\n", text)
	return err
}

// NewLogger returns the logger of a node or of an offline tool. level is debug, info, warn or
// error; format is text or json. Both escape what a terminal would not show as it is.
func NewLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, UsageError("--log-level %q is not debug, info, warn or error", level)
	}
	opts := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(printable{w}, opts)), nil
	default:
		return nil, UsageError("--log-format %q is not text or json", format)
	}
}
