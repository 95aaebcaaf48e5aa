package main

import (
	"bufio"
	"errors"
	"fmt"
	"iter"
	"unicode/utf8"
)

// tableSample is how many rows are held back to measure the columns by. A longer listing streams on
// with these widths; a later, wider cell pushes its row to the right.
const tableSample = 200

// table writes aligned columns. The last column is cut to the terminal.
type table struct {
	out    *bufio.Writer
	width  int // of the terminal; 0: nothing is cut
	sample [][]string
	widths []int // nil while the sample is gathered
}

func newTable(out *bufio.Writer, width int, heads ...string) *table {
	return &table{out: out, width: width, sample: [][]string{heads}}
}

// row adds a row of as many cells as there are heads.
func (t *table) row(cells ...string) {
	for i := range cells {
		cells[i] = oneLine(cells[i])
		if cells[i] == "" {
			cells[i] = "-"
		}
	}
	if t.widths != nil {
		t.write(cells)
		return
	}
	t.sample = append(t.sample, cells)
	if len(t.sample) > tableSample {
		t.settle()
	}
}

// end writes what is held back. Errors stay in out until it is flushed.
func (t *table) end() {
	if t.widths == nil {
		t.settle()
	}
}

func (t *table) settle() {
	t.widths = make([]int, len(t.sample[0]))
	for _, cells := range t.sample {
		for i, cell := range cells {
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, cells := range t.sample {
		t.write(cells)
	}
	t.sample = nil
}

func (t *table) write(cells []string) {
	column, last := 0, len(cells)-1
	for i, cell := range cells[:last] {
		pad := max(0, t.widths[i]-utf8.RuneCountInString(cell)) + 2
		fmt.Fprintf(t.out, "%s%*s", cell, pad, "")
		column += utf8.RuneCountInString(cell) + pad
	}
	room := 0
	if t.width > 0 {
		room = max(t.width-column, 8)
	}
	fmt.Fprintln(t.out, cut(cells[last], room))
}

// list writes at most limit (0: all) of the things that seq yields, as JSON lines or as a table.
// What came before an error is written; an error on the first thing writes nothing, not even the
// heads.
func list[T any](a *app, seq iter.Seq2[T, error], limit uint64,
	line func(T) ([]byte, error), cells func(T) []string, heads ...string,
) error {
	out := bufio.NewWriter(a.stdout)
	rows := newTable(out, a.stdoutWidth, heads...)
	var count uint64
	var failure error
	for thing, err := range seq {
		if failure = err; err != nil {
			break
		}
		if a.format == formatJSON {
			text, err := line(thing)
			if failure = err; err != nil {
				break
			}
			fmt.Fprintf(out, "%s\n", text)
		} else {
			rows.row(cells(thing)...)
		}
		if count++; count == limit {
			break
		}
	}
	if a.format != formatJSON && (count > 0 || failure == nil) {
		rows.end()
	}
	return errors.Join(failure, out.Flush())
}

// facts writes "Name  value" lines, aligned, leaving out those without a value.
func facts(out *bufio.Writer, pairs ...[2]string) {
	widest := 0
	for _, pair := range pairs {
		if pair[1] != "" {
			widest = max(widest, len(pair[0]))
		}
	}
	for _, pair := range pairs {
		if pair[1] != "" {
			fmt.Fprintf(out, "%-*s  %s\n", widest, pair[0], oneLine(pair[1]))
		}
	}
}
