package output

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"text/tabwriter"
)

// tableBlock is how many rows a table holds back to measure its columns. A longer listing is
// written block by block, so that it streams and its memory is bounded.
const tableBlock = 200

// Table writes aligned columns. A row is cut to the width of the terminal.
type Table struct {
	tabs *tabwriter.Writer
	rows int // in the block
}

// NewTable begins a table with a row of heads. width is that of the terminal; 0 cuts nothing.
func NewTable(out io.Writer, width int, heads ...string) *Table {
	if width > 0 {
		out = &cutter{out: out, width: width}
	}
	t := &Table{tabs: newTabs(out)}
	t.write(heads)
	return t
}

// newTabs returns a writer of left-aligned columns with two blanks between them.
func newTabs(out io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(out, 0, 0, 2, ' ', 0) }

// Row adds a row with a cell for each head. A dash stands for an empty cell.
func (t *Table) Row(cells ...string) {
	for i := range cells {
		cells[i] = Dash(cells[i])
	}
	t.write(cells)
	if t.rows++; t.rows%tableBlock == 0 {
		t.End()
	}
}

func (t *Table) write(cells []string) {
	fmt.Fprintln(t.tabs, strings.Join(cells, "\t"))
}

// End writes the rows that are held back.
func (t *Table) End() {
	_ = t.tabs.Flush() // A buffer keeps its error until it is flushed.
}

// cutter cuts each line to a width in characters.
type cutter struct {
	out   io.Writer
	width int
	line  []byte // that has not ended yet
}

func (c *cutter) Write(text []byte) (int, error) {
	written := len(text)
	for {
		line, rest, ended := bytes.Cut(text, []byte("\n"))
		c.line = append(c.line, line...)
		if !ended {
			return written, nil
		}
		if _, err := fmt.Fprintln(c.out, Cut(string(c.line), c.width)); err != nil {
			return 0, err
		}
		c.line, text = c.line[:0], rest
	}
}

// List writes at most limit (0: all) of the items of seq, as JSON lines or as a table. Items before
// an error are written. If the first item is an error, nothing is written, not even the heads.
func List[T any](o *Output, seq iter.Seq2[T, error], limit uint64,
	line func(T) ([]byte, error), cells func(T) []string, heads ...string,
) error {
	out := bufio.NewWriter(o.Stdout)
	rows := NewTable(out, o.StdoutWidth, heads...)
	var count uint64
	var failure error
	for item, err := range seq {
		if failure = err; err != nil {
			break
		}
		if o.Format == JSON {
			text, err := line(item)
			if failure = err; err != nil {
				break
			}
			fmt.Fprintf(out, "%s\n", text)
		} else {
			rows.Row(cells(item)...)
		}
		if count++; count == limit {
			break
		}
	}
	if o.Format != JSON && (count > 0 || failure == nil) {
		rows.End()
	}
	return errors.Join(failure, out.Flush())
}

// All returns the items of a slice as List takes them.
func All[T any](items []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, item := range items {
			if !yield(item, nil) {
				return
			}
		}
	}
}

// First yields the first limit items of seq (0: all), and reports in more whether there are others.
func First[T any](seq iter.Seq2[T, error], limit uint64, more *bool) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		left := limit
		for item, err := range seq {
			if *more = limit > 0 && left == 0 && err == nil; *more || !yield(item, err) {
				return
			}
			left--
		}
	}
}

// Facts writes a line for each name and value, aligned. A fact without a value is left out.
func Facts(out io.Writer, pairs ...[2]string) {
	tabs := newTabs(out)
	for _, pair := range pairs {
		if pair[1] != "" {
			fmt.Fprintf(tabs, "%s\t%s\n", pair[0], OneLine(pair[1]))
		}
	}
	_ = tabs.Flush() // A buffer keeps its error until it is flushed.
}
