package export

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// maxFooterBytes bounds what is read of a Parquet file at once: its footer tells of each row group some kilobytes.
const maxFooterBytes = 64 << 20

// groups are the records of a Parquet file, row group by row group, read column by column.
type groups struct {
	groups  []parquet.RowGroup // those that were not begun
	left    int                // rows of the current one that were not read
	columns []*cells           // of the current one
	texts   []byte             // of a column
	ends    []int              // of each row's text in texts
}

// openParquet looks at a file's footer. What the library panics on, as files that were changed make it, is a fault of the
// file.
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
	if string(tail[4:]) != "PAR1" || footer > size-12 || footer > maxFooterBytes {
		return nil, "", fmt.Errorf("%w: it does not end as a Parquet file, so that it was cut or added to", errFile)
	}
	f, err := parquet.OpenFile(file, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", errFile, err)
	}
	if err := sameSchema(f.Schema()); err != nil {
		return nil, "", err
	}
	if err := nothingHidden(f.Metadata(), size-8-footer); err != nil {
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
	return &groups{groups: f.RowGroups()}, manifest, nil
}

// nothingHidden wants every byte up to the footer to belong to a column or to an index, and to one alone: what the footer
// does not lead to, no reader would see.
func nothingHidden(m *format.FileMetaData, end int64) error {
	type span struct{ from, to int64 }
	spans := []span{{0, int64(len("PAR1"))}, {end, end}}
	for _, group := range m.RowGroups {
		for i := range group.Columns {
			c := &group.Columns[i]
			from := c.MetaData.DataPageOffset
			if at := c.MetaData.DictionaryPageOffset; at > 0 {
				from = min(from, at)
			}
			spans = append(spans, span{from, from + c.MetaData.TotalCompressedSize},
				span{c.ColumnIndexOffset, c.ColumnIndexOffset + int64(c.ColumnIndexLength)},
				span{c.OffsetIndexOffset, c.OffsetIndexOffset + int64(c.OffsetIndexLength)})
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	for i := 1; i < len(spans); i++ {
		if spans[i].from != spans[i-1].to {
			return fmt.Errorf("%w: bytes %d to %d belong to no column, or to two", errFile, spans[i-1].to, spans[i].from)
		}
	}
	return nil
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
		for _, chunk := range group.ColumnChunks() {
			g.columns = append(g.columns, &cells{in: parquet.NewColumnChunkValueReader(chunk)})
		}
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

// endGroup wants the columns of the current group to end with its rows.
func (g *groups) endGroup() error {
	for k, column := range g.columns {
		_, err := column.peek()
		if err == nil {
			err = errors.New("more values than rows")
		}
		if !errors.Is(err, io.EOF) {
			return fmt.Errorf("%w: column %q: %w", errFile, columns[k], err)
		}
		if err := column.in.Close(); err != nil {
			return err
		}
	}
	g.columns = g.columns[:0]
	return nil
}

// column reads one column of a batch's rows.
func (g *groups) column(b *batch, k int, column *cells) error {
	g.texts, g.ends = g.texts[:0], g.ends[:0]
	if k == memberPayload {
		g.texts = b.raw[:0]
	}
	for i := range b.records {
		r := &b.records[i].Record
		v, err := column.take()
		switch {
		case err != nil:
		case k == memberLogicalAttemptID:
			err = setAttempt(&r.LogicalAttemptID, v.Int64())
		case k == memberEngineAttemptID:
			err = setAttempt(&r.EngineAttemptID, v.Int64())
		case k == memberEmittedAt:
			r.EmittedAt = v.Int64()
		case k == memberPersistedAt:
			r.PersistedAt = v.Int64()
		case k == memberImportedAt && !v.IsNull():
			r.ImportedAt = v.Int64()
		case k == memberRunSeq:
			r.RunSeq = uint64(v.Int64())
		case k == memberInherited:
			err = g.inherited(r, v, column)
		case !v.IsNull():
			g.texts = append(g.texts, v.ByteArray()...)
		}
		if err != nil {
			return fmt.Errorf("%w: column %q: %w", errFile, columns[k], noEOF(err))
		}
		g.ends = append(g.ends, len(g.texts))
	}
	if k == memberPayload {
		b.raw = g.texts
	}
	return g.set(b, k)
}

// set gives the texts of a column to the records.
func (g *groups) set(b *batch, k int) error {
	switch k {
	case memberLogicalAttemptID, memberEngineAttemptID, memberEmittedAt, memberPersistedAt, memberImportedAt, memberRunSeq, memberInherited:
		return nil // no texts
	}
	text, from := "", 0
	if k != memberPayload {
		text = string(g.texts)
	}
	for i, end := range g.ends {
		r := &b.records[i].Record
		if k == memberPayload {
			r.Payload = b.raw[from:end:end]
		} else if want := setCell(k, text[from:end], r); want != "" {
			return fmt.Errorf("%w: column %q has what is not %s", errFile, columns[k], want)
		}
		from = end
	}
	if k == memberPayload {
		g.texts = nil // it is the batch's
	}
	return nil
}

// inherited takes the names of one row, of which v is the first.
func (g *groups) inherited(r *Record, v parquet.Value, column *cells) error {
	for {
		if !v.IsNull() && !inherit(&r.Absent, string(v.ByteArray())) {
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

// cells are the values of a column of a row group. A value holds until the next one is looked at.
type cells struct {
	in     parquet.ColumnChunkValueReader
	values [rowsAtOnce]parquet.Value
	rest   []parquet.Value
}

func (c *cells) peek() (parquet.Value, error) {
	for len(c.rest) == 0 {
		n, err := c.in.ReadValues(c.values[:])
		if c.rest = c.values[:n]; n == 0 && err != nil {
			return parquet.Value{}, err
		}
	}
	return c.rest[0], nil
}

func (c *cells) take() (parquet.Value, error) {
	v, err := c.peek()
	if err == nil {
		c.rest = c.rest[1:]
	}
	return v, err
}
