package export

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"runlog/proto/contract"
)

// maxFooterBytes bounds the footer of a Parquet file: it has some kilobytes for each row group.
const maxFooterBytes = 64 << 20

// groups are the records of a Parquet file, row group by row group, read column by column.
type groups struct {
	groups  []parquet.RowGroup // row groups not started
	pages   [][][]dataHeader   // of each of them, of each column
	left    int                // unread rows of the current one
	columns []*cells           // of the current one
	texts   []byte             // of a column
	ends    []int              // of each row's text in texts
}

// openParquet reads a file's footer. A panic of the library, as changed files cause, is reported as
// a fault of the file.
func openParquet(file io.ReaderAt, size int64) (_ source, manifest string, err error) {
	defer catch(&err)
	var tail [8]byte
	if size < 12 {
		return nil, "", fmt.Errorf("%w: it is too short for a Parquet file", errFile)
	}
	if _, err := file.ReadAt(tail[:], size-8); err != nil && !errors.Is(err, io.EOF) {
		return nil, "", err
	}
	footer := int64(binary.LittleEndian.Uint32(tail[:]))
	if string(tail[4:]) != magic || footer > size-12 || footer > maxFooterBytes {
		return nil, "", fmt.Errorf("%w: it does not end as a Parquet file, so that it was cut or added to", errFile)
	}
	f, err := parquet.OpenFile(file, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", errFile, err)
	}
	if err := sameSchema(f.Schema()); err != nil {
		return nil, "", err
	}
	for _, kv := range f.Metadata().KeyValueMetadata {
		if kv.Key != manifestKey {
			return nil, "", fmt.Errorf("%w: its metadata has %q, which exports do not have", errFile, kv.Key)
		}
		if manifest != "" {
			return nil, "", fmt.Errorf("%w: its metadata has two manifests", errFile)
		}
		manifest = kv.Value
	}
	if manifest == "" {
		return nil, "", fmt.Errorf("%w: its metadata has no manifest", errFile)
	}
	begin := size - 8 - footer
	pages, heads, err := walk(file, f.Metadata(), begin)
	if err != nil {
		return nil, "", err
	}
	if err := sameFooter(file, begin, footer, pages, manifest); err != nil {
		return nil, "", err
	}
	return &groups{groups: f.RowGroups(), pages: heads}, manifest, nil
}

// sameFooter checks that a footer is that of the pages, byte by byte.
func sameFooter(file io.ReaderAt, at, size int64, pages []group, manifest string) error {
	got := make([]byte, size)
	if _, err := file.ReadAt(got, at); err != nil {
		return err
	}
	want, err := footerOf(pages, manifest)
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("%w: its footer has statistics, an index or what else exports do not have, or is not that of its pages", errFile)
	}
	return err
}

// walk reads the headers of all pages, which must follow one another from the start of a file to
// its footer: a reader would not see bytes without a header.
func walk(file io.ReaderAt, m *format.FileMetaData, end int64) (groups []group, pages [][][]dataHeader, err error) {
	at := int64(len(magic))
	for i := range m.RowGroups {
		if n := len(m.RowGroups[i].Columns); n != len(columns) {
			return nil, nil, fmt.Errorf("%w: row group %d has %d columns", errFile, i+1, n)
		}
		g, heads := make(group, len(columns)), make([][]dataHeader, len(columns))
		for k := range g {
			g[k].at = at
			for g[k].rows < m.RowGroups[i].NumRows {
				h, size, err := pageAt(file, at, end)
				if err == nil {
					err = g[k].add(&h, size)
				}
				if errors.Is(err, errPage) {
					err = fmt.Errorf("%w: row group %d, column %q, byte %d: %w", errFile, i+1, columns[k], at, err)
				}
				if err != nil {
					return nil, nil, err
				}
				if h.Data.Valid {
					heads[k] = append(heads[k], h.Data.V)
				}
				at += int64(size) + int64(h.CompressedSize)
			}
		}
		groups, pages = append(groups, g), append(pages, heads)
	}
	if at != end {
		return nil, nil, fmt.Errorf("%w: its pages end at byte %d and its footer begins at %d: there is something between them", errFile, at, end)
	}
	return groups, pages, nil
}

// pageAt reads the page header at a place before the end. Errors of the content are errPage.
func pageAt(file io.ReaderAt, at, end int64) (h pageHeader, size int, err error) {
	var head [maxHeaderBytes]byte
	n, err := file.ReadAt(head[:max(0, min(maxHeaderBytes, end-at))], at)
	if err != nil && !errors.Is(err, io.EOF) {
		return h, 0, err
	}
	h, size, err = parsePage(head[:n])
	if err == nil && int64(h.CompressedSize) > end-at-int64(size) {
		err = fmt.Errorf("%w: it does not end before the footer", errPage)
	}
	return h, size, err
}

// catch makes an error of a panic.
func catch(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %v", errFile, p)
	}
}

func sameSchema(got *parquet.Schema) error {
	fields, want := got.Fields(), parquetSchema.Fields()
	for i := range want {
		if i >= len(fields) || fields[i].Name() != want[i].Name() {
			return fmt.Errorf("%w: column %d is not called %q", errFile, i+1, want[i].Name())
		}
		if !parquet.EqualNodes(fields[i], want[i]) {
			return fmt.Errorf("%w: column %q is not %v", errFile, want[i].Name(), want[i])
		}
	}
	if len(fields) > len(want) {
		return fmt.Errorf("%w: it has a column %q, which exports do not have", errFile, fields[len(want)].Name())
	}
	return nil
}

func (*groups) unit() string { return "row" }

func (g *groups) parse(*batch) {}

// next reads some rows, column by column.
func (g *groups) next(b *batch) (err error) {
	defer catch(&err)
	for g.left == 0 {
		if err := g.endGroup(); err != nil {
			return err
		}
		if len(g.groups) == 0 {
			return io.EOF
		}
		group := g.groups[0]
		g.groups, g.left = g.groups[1:], int(group.NumRows())
		for k, chunk := range group.ColumnChunks() {
			g.columns = append(g.columns, &cells{pages: chunk.Pages(), heads: g.pages[0][k]})
		}
		g.pages = g.pages[1:]
	}
	n := min(g.left, rowsAtOnce)
	b.records = slices.Grow(b.records[:0], n)[:n]
	for i := range b.records {
		b.records[i] = checked{}
	}
	for k, column := range g.columns {
		if err := g.column(b, k, column); err != nil {
			return err
		}
	}
	g.left -= n
	return nil
}

// endGroup checks that the columns of the current group end with its rows.
func (g *groups) endGroup() error {
	for k, column := range g.columns {
		_, err := column.peek()
		if err == nil {
			err = errors.New("more values than rows")
		}
		if !errors.Is(err, io.EOF) {
			return fmt.Errorf("%w: column %q: %w", errFile, columns[k], err)
		}
		if err := column.pages.Close(); err != nil {
			return err
		}
	}
	g.columns = g.columns[:0]
	return nil
}

// column reads one column of a batch's rows.
func (g *groups) column(b *batch, k int, column *cells) error {
	g.texts, g.ends = g.texts[:0], g.ends[:0]
	if k == payloadColumn {
		g.texts = b.raw[:0]
	}
	f := &fields[k]
	for i := range b.records {
		v, err := column.take()
		if err == nil {
			err = g.cell(f, v, column, (*contract.Recorded)(&b.records[i].Record))
		}
		if err != nil {
			return fmt.Errorf("%w: column %q: %w", errFile, columns[k], noEOF(err))
		}
		g.ends = append(g.ends, len(g.texts))
	}
	if k == payloadColumn {
		b.raw = g.texts
	}
	return g.set(b, k)
}

// errEmpty is an empty value: a missing field must be null.
var errEmpty = errors.New("has a value that is empty, and not null")

// cell takes a value. Texts are appended to those of the column.
func (g *groups) cell(f *contract.Field, v parquet.Value, column *cells, r *contract.Recorded) error {
	switch f.Kind {
	case contract.KindCount:
		return setAttempt(f.Count(r), v.Int64())
	case contract.KindNumber:
		*f.Number(r) = uint64(v.Int64())
		return nil
	case contract.KindNames:
		return g.inherited(f.Names(r), v, column)
	}
	empty := false
	switch {
	case v.IsNull():
	case f.Kind == contract.KindTime:
		*f.Time(r) = v.Int64()
		empty = v.Int64() == 0
	default:
		g.texts = append(g.texts, v.ByteArray()...)
		empty = len(v.ByteArray()) == 0
	}
	if empty && f.Optional {
		return errEmpty
	}
	return nil
}

// set gives the texts of a column to the records.
func (g *groups) set(b *batch, k int) error {
	switch fields[k].Kind {
	case contract.KindCount, contract.KindNumber, contract.KindTime, contract.KindNames:
		return nil // no texts
	}
	text, from := "", 0
	if k != payloadColumn {
		text = string(g.texts)
	}
	for i, end := range g.ends {
		r := &b.records[i].Record
		if k == payloadColumn {
			r.Payload = b.raw[from:end:end]
		} else if want := setCell(k, text[from:end], r); want != "" {
			return fmt.Errorf("%w: column %q has what is not %s", errFile, columns[k], want)
		}
		from = end
	}
	if k == payloadColumn {
		g.texts = nil // it is the batch's
	}
	return nil
}

// inherited takes the names of one row, of which v is the first.
func (g *groups) inherited(absent *contract.Absent, v parquet.Value, column *cells) error {
	for {
		if !v.IsNull() && !contract.Inherit(absent, string(v.ByteArray())) {
			return errors.New("not " + wantNames)
		}
		next, err := column.peek()
		if errors.Is(err, io.EOF) || err == nil && next.RepetitionLevel() == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		if v, err = column.take(); err != nil {
			return err
		}
	}
}

func setAttempt(dst *uint32, n int64) error {
	*dst = uint32(n)
	if n < 1 || int64(*dst) != n {
		return errors.New("not " + wantNumber)
	}
	return nil
}

// noEOF is for a column that ends before its rows.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// cells are the values of a column of a row group. A value is valid until the next one is read.
type cells struct {
	pages  parquet.Pages
	heads  []dataHeader // of the pages that were not ended
	page   parquet.Page // the current one; nil: none
	in     parquet.ValueReader
	got    dataHeader // counts of the current page
	values [rowsAtOnce]parquet.Value
	rest   []parquet.Value
}

func (c *cells) peek() (parquet.Value, error) {
	for len(c.rest) == 0 {
		if c.page == nil {
			page, err := c.pages.ReadPage()
			if err != nil {
				return parquet.Value{}, err
			}
			c.page, c.in, c.got = page, page.Values(), dataHeader{}
		}
		n, err := c.in.ReadValues(c.values[:])
		c.rest = c.values[:n]
		c.count()
		if n == 0 && errors.Is(err, io.EOF) {
			err = c.endPage()
		}
		if n == 0 && err != nil {
			return parquet.Value{}, err
		}
	}
	return c.rest[0], nil
}

func (c *cells) count() {
	c.got.NumValues += int32(len(c.rest))
	for i := range c.rest {
		if c.rest[i].IsNull() {
			c.got.NumNulls++
		}
		if c.rest[i].RepetitionLevel() == 0 {
			c.got.NumRows++
		}
	}
}

// endPage checks a page's contents against its header, which engines may trust.
func (c *cells) endPage() error {
	parquet.Release(c.page)
	c.page, c.in = nil, nil
	if len(c.heads) == 0 {
		return errPage
	}
	want := c.heads[0]
	if c.heads = c.heads[1:]; c.got.NumValues != want.NumValues || c.got.NumNulls != want.NumNulls || c.got.NumRows != want.NumRows {
		return fmt.Errorf("a page has %d values, %d of them null, in %d rows, and says %d, %d and %d",
			c.got.NumValues, c.got.NumNulls, c.got.NumRows, want.NumValues, want.NumNulls, want.NumRows)
	}
	return nil
}

func (c *cells) take() (parquet.Value, error) {
	v, err := c.peek()
	if err == nil {
		c.rest = c.rest[1:]
	}
	return v, err
}
