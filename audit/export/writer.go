package export

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

// bufferBytes is how much of a text file is written at a time.
const bufferBytes = 256 << 10

// Format is the form of a file.
type Format int

// The formats.
const (
	JSONLines Format = iota + 1
	CSV
	Parquet
)

// formats has the names of the formats, which file names end in too.
var formats = [...]struct{ name, told string }{
	JSONLines: {"jsonl", "JSON lines"},
	CSV:       {"csv", "CSV"},
	Parquet:   {"parquet", "Parquet"},
}

// ErrFormat means that a format is unknown.
var ErrFormat = errors.New("export: want jsonl, csv or parquet")

// String returns the format's name.
func (f Format) String() string { return formats[f].told }

// Sidecar reports whether files of the format may have their manifest in a file of its own. The
// metadata of Parquet always has it, where other programs do not mind it.
func (f Format) Sidecar() bool { return f != Parquet }

// FormatNames returns the names that ParseFormat takes.
func FormatNames() []string {
	return []string{formats[JSONLines].name, formats[CSV].name, formats[Parquet].name}
}

// ParseFormat returns the format of a name.
func ParseFormat(name string) (Format, error) {
	for f := range formats {
		if f > 0 && formats[f].name == name {
			return Format(f), nil
		}
	}
	return 0, fmt.Errorf("%w, not %q", ErrFormat, name)
}

// FormatOf returns the format of a file name.
func FormatOf(path string) (Format, error) {
	return ParseFormat(strings.ToLower(strings.TrimPrefix(filepath.Ext(path), ".")))
}

// Writer writes the records of a window to a file, in commit order. Only one goroutine uses it.
type Writer interface {
	// Write takes a record, and keeps nothing of it.
	Write(r *Record) error
	// Close ends the file with its manifest, a note with the statement of a proof.Export. If the
	// manifest is empty, it is left out, for a file that has it in another file beside it
	// (Format.Sidecar). Close does not close the underlying writer.
	Close(manifest string) error
}

var (
	_ Writer = (*jsonWriter)(nil)
	_ Writer = (*csvWriter)(nil)
	_ Writer = (*parquetWriter)(nil)
)

// NewWriter returns the writer of a format.
func NewWriter(f Format, out io.Writer) (Writer, error) {
	switch f {
	case JSONLines:
		return &jsonWriter{out: out, buf: make([]byte, 0, bufferBytes+bufferBytes/4)}, nil
	case CSV:
		return newCSVWriter(out), nil
	case Parquet:
		return newParquetWriter(out), nil
	}
	return nil, ErrFormat
}
