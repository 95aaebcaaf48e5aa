package export

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"runlog/audit/proof"
)

const (
	// pieceBytes is how much of a text file is read, and given to one worker, at a time.
	pieceBytes = 256 << 10
	// maxLineBytes bounds a line or row: a payload of 1 MiB of quotes, and all other fields.
	maxLineBytes = 4 << 20
	// maxManifestBytes bounds the last line of a text file: a statement with 100 types of 256
	// bytes, each an escape.
	maxManifestBytes = 1 << 20
)

// errFile means that a file is not an export. The error's text is the reason, without a prefix.
var errFile = errors.New("the file is not whole")

// source reads the records of a file in their order, piece by piece. Only one goroutine calls next;
// parse is called in several at a time, each with a batch of its own.
type source interface {
	// next puts the next piece of the file into a batch, and is io.EOF at the file's end. Errors of
	// the content wrap errFile.
	next(b *batch) error
	// parse makes records of a piece. It stops after an unreadable one, whose fault is that of the
	// last record.
	parse(b *batch)
	// unit is the word for a record: line or row.
	unit() string
}

// batch is a piece of a file on its way. Its buffers are used again.
type batch struct {
	raw     []byte // whole lines or rows; of a Parquet file the payloads
	records []checked
	err     error         // the reason why there is no next piece
	parsed  chan struct{} // has room for one
}

// checked is a record and its own fault.
type checked struct {
	Record
	fault string // why it could not be read; empty: it was
	wrong string // the fault within the record; empty: none
}

// add returns the place of the next record.
func (b *batch) add() *checked {
	if len(b.records) < cap(b.records) {
		b.records = b.records[:len(b.records)+1]
	} else {
		b.records = append(b.records, checked{})
	}
	c := &b.records[len(b.records)-1]
	c.fault, c.wrong = "", ""
	return c
}

// Detect returns the format of a file by its first few hundred bytes; 0: unknown.
func Detect(head []byte) Format {
	switch {
	case bytes.HasPrefix(head, []byte("PAR1")):
		return Parquet
	case bytes.HasPrefix(head, []byte(columns[0]+",")):
		return CSV
	case bytes.HasPrefix(head, []byte(manifestMember)), bytes.HasPrefix(head, []byte(`{"`)):
		return JSONLines
	}
	return 0
}

// open returns the records of a file and its manifest. beside is the manifest if the file does not
// have it. Errors of the content wrap errFile.
func open(f Format, file io.ReaderAt, size int64, beside string) (source, string, error) {
	if f == Parquet {
		return openParquet(file, size)
	}
	manifest, end := beside, size
	if beside == "" {
		line, at, err := lastLine(file, size)
		if err != nil {
			return nil, "", err
		}
		var ok bool
		if manifest, ok = manifestIn(f, line); !ok {
			return nil, "", fmt.Errorf("%w: its last line is no manifest, so that it was cut or added to", errFile)
		}
		end = at
	}
	if f == JSONLines {
		return &lines{pieces{in: io.NewSectionReader(file, 0, end)}}, manifest, nil
	}
	head := strings.Join(columns, ",") + "\n"
	if err := sameHead(file, head, end); err != nil {
		return nil, "", err
	}
	n := int64(len(head))
	return &rows{pieces{in: io.NewSectionReader(file, n, end-n), quoted: true}}, manifest, nil
}

// manifestIn returns the manifest in the last line of a text file.
func manifestIn(f Format, line string) (manifest string, ok bool) {
	token, ok := strings.CutPrefix(line, manifestComment)
	if f == JSONLines {
		var closed bool
		token, ok = strings.CutPrefix(line, manifestMember)
		token, closed = strings.CutSuffix(token, "}")
		ok = ok && closed
	}
	manifest, text := unquote(token)
	return manifest, ok && text
}

// HasManifest reports whether a file ends with its manifest. If not, it was cut, or its manifest is
// in another file (VerifyBeside).
func HasManifest(f Format, file io.ReaderAt, size int64) (bool, error) {
	if !f.Sidecar() {
		return true, nil
	}
	line, _, err := lastLine(file, size)
	if err != nil && !errors.Is(err, errFile) {
		return false, err
	}
	_, ok := manifestIn(f, line)
	return ok, nil
}

// unquote reads a JSON string in the only spelling that proof.Quote has for it.
func unquote(token string) (text string, ok bool) {
	return text, json.Unmarshal([]byte(token), &text) == nil && proof.Quote(text) == token
}

// lastLine returns the last line of a file without its line feed, and its offset.
func lastLine(file io.ReaderAt, size int64) (line string, at int64, err error) {
	n := min(size, maxManifestBytes)
	tail := make([]byte, n)
	if _, err := file.ReadAt(tail, size-n); err != nil && !errors.Is(err, io.EOF) {
		return "", 0, err
	}
	body, ok := bytes.CutSuffix(tail, []byte("\n"))
	if !ok {
		return "", 0, fmt.Errorf("%w: its last line has no end, so that it was cut or added to", errFile)
	}
	begin := bytes.LastIndexByte(body, '\n') + 1
	if begin == 0 && n < size {
		return "", 0, fmt.Errorf("%w: its last line is longer than any manifest", errFile)
	}
	return string(body[begin:]), size - n + int64(begin), nil
}

// sameHead checks a CSV file's first line.
func sameHead(file io.ReaderAt, head string, end int64) error {
	got := make([]byte, min(end, int64(len(head))))
	if _, err := file.ReadAt(got, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if string(got) == head {
		return nil
	}
	line, _, _ := strings.Cut(string(got), "\n")
	if strings.HasSuffix(line, "\r") {
		return fmt.Errorf("%w: its lines end with a carriage return, so that another program has written it again; verify the file as it was exported", errFile)
	}
	names := strings.Split(line, ",")
	for i, want := range columns {
		if i >= len(names) || names[i] != want {
			return fmt.Errorf("%w: column %d is not called %q", errFile, i+1, want)
		}
	}
	return fmt.Errorf("%w: it has more than the %d columns of an export", errFile, len(columns))
}

// pieces cuts a text into pieces of whole lines.
type pieces struct {
	in     io.Reader
	quoted bool   // a line feed between quotes ends no line (RFC 4180)
	rest   []byte // read, and not delivered
	ended  bool
}

// next fills a buffer with the next piece, and may make it larger.
func (p *pieces) next(buf []byte) ([]byte, error) {
	buf = append(buf[:0], p.rest...)
	p.rest = p.rest[:0]
	for {
		for !p.ended && len(buf) < cap(buf) {
			n, err := p.in.Read(buf[len(buf):cap(buf)])
			buf = buf[:len(buf)+n]
			if p.ended = errors.Is(err, io.EOF); err != nil && !p.ended {
				return buf, err
			}
		}
		end := p.end(buf)
		switch {
		case end > 0:
			p.rest = append(p.rest, buf[end:]...)
			return buf[:end], nil
		case p.ended && len(buf) == 0:
			return buf, io.EOF
		case p.ended || len(buf) > maxLineBytes:
			return buf, fmt.Errorf("%w: it has a line without an end, or of more than %d MiB", errFile, maxLineBytes>>20)
		}
		buf = append(make([]byte, 0, 2*cap(buf)), buf...)
	}
}

// end returns the offset after the last complete line; 0: none.
func (p *pieces) end(buf []byte) int {
	if !p.quoted {
		return bytes.LastIndexByte(buf, '\n') + 1
	}
	end := 0
	for at := 0; ; {
		n := endOfRow(buf[at:])
		if n == 0 {
			return end
		}
		at += n
		end = at
	}
}

// endOfRow returns the offset after the first line feed outside of quotes; 0: none.
func endOfRow(buf []byte) int {
	open := false
	for at := 0; ; {
		n := bytes.IndexByte(buf[at:], '\n')
		if n < 0 {
			return 0
		}
		open = open != (bytes.Count(buf[at:at+n], quote)%2 == 1)
		if at += n + 1; !open {
			return at
		}
	}
}

var quote = []byte{'"'}

// lines are the records of a file of JSON lines.
type lines struct{ pieces }

func (*lines) unit() string { return "line" }

func (l *lines) next(b *batch) (err error) {
	b.raw, err = l.pieces.next(b.raw)
	return err
}

func (*lines) parse(b *batch) {
	raw, text := b.raw, string(b.raw)
	for len(raw) > 0 {
		n := bytes.IndexByte(raw, '\n')
		c := b.add()
		if c.fault = parseLine(raw[:n:n], text[:n], &c.Record); c.fault != "" {
			return
		}
		raw, text = raw[n+1:], text[n+1:]
	}
}

// rows are the records of a CSV file.
type rows struct{ pieces }

func (*rows) unit() string { return "row" }

func (r *rows) next(b *batch) (err error) {
	b.raw, err = r.pieces.next(b.raw)
	return err
}

func (*rows) parse(b *batch) {
	raw, text := b.raw, string(b.raw)
	for len(raw) > 0 {
		n := endOfRow(raw)
		c := b.add()
		if c.fault = parseRow(raw[:n-1:n-1], text[:n-1], &c.Record); c.fault != "" {
			return
		}
		raw, text = raw[n:], text[n:]
	}
}
