package export

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// twoGroups is a Parquet file with two row groups, each with columns of several kinds.
func twoGroups(t *testing.T, records []*Record, manifest string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := newParquetWriter(&out)
	for i, r := range records {
		if i == len(records)/2 {
			if err := w.flush(); err != nil {
				t.Fatal(err)
			}
			if err := w.endGroup(); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(manifest); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// footerBegin returns where the footer of a file begins.
func footerBegin(file []byte) int {
	return len(file) - 8 - int(binary.LittleEndian.Uint32(file[len(file)-8:]))
}

// withFooter puts another footer behind the pages of a file.
func withFooter(t *testing.T, file []byte, footer any) []byte {
	t.Helper()
	text, ok := footer.([]byte)
	if !ok {
		var err error
		if text, err = thrift.Marshal(new(thrift.CompactProtocol), footer); err != nil {
			t.Fatal(err)
		}
	}
	out := append(bytes.Clone(file[:footerBegin(file)]), text...)
	return append(binary.LittleEndian.AppendUint32(out, uint32(len(text))), magic...)
}

// rewritten returns a file with the same pages and the footer that fits them. change returns the
// header of each page.
func rewritten(t *testing.T, file []byte, manifest string, change func(column string, h *pageHeader) any) []byte {
	t.Helper()
	f, err := parquet.OpenFile(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	out, at := []byte(magic), len(magic)
	var groups []group
	for _, rowGroup := range f.Metadata().RowGroups {
		g := make(group, len(columns))
		for k := range g {
			g[k].at = int64(len(out))
			for rows := int64(0); rows < rowGroup.NumRows; {
				h, size, err := parsePage(file[at:])
				if err != nil {
					t.Fatal(err)
				}
				at, rows = at+size, rows+int64(h.Data.V.NumRows)
				page := file[at : at+int(h.CompressedSize)]
				at += len(page)
				text, err := thrift.Marshal(new(thrift.CompactProtocol), change(columns[k], &h))
				if err != nil {
					t.Fatal(err)
				}
				if err := g[k].add(&h, len(text)); err != nil {
					t.Fatal(err)
				}
				out = append(append(out, text...), page...)
			}
		}
		groups = append(groups, g)
	}
	text, err := footerOf(groups, manifest)
	if err != nil {
		t.Fatal(err)
	}
	return withFooter(t, append(out, make([]byte, 8)...), text)
}

// full is a page's header with all that the format has room for.
func full(h *pageHeader) *format.PageHeader {
	out := &format.PageHeader{Type: h.Type, UncompressedPageSize: h.UncompressedSize, CompressedPageSize: h.CompressedSize, CRC: h.CRC}
	if d := h.Dictionary.V; h.Dictionary.Valid {
		out.DictionaryPageHeader.Set(format.DictionaryPageHeader{NumValues: d.NumValues, Encoding: d.Encoding})
	}
	if d := h.Data.V; h.Data.Valid {
		out.DataPageHeaderV2.Set(format.DataPageHeaderV2{
			NumValues: d.NumValues, NumNulls: d.NumNulls, NumRows: d.NumRows, Encoding: d.Encoding,
			DefinitionLevelsByteLength: d.DefinitionLevelsByteLength, RepetitionLevelsByteLength: d.RepetitionLevelsByteLength, IsCompressed: d.IsCompressed,
		})
	}
	return out
}

// TestParquetHasNoStatistics: there is nothing in a file by which an engine could skip rows, and
// other readers take it.
func TestParquetHasNoStatistics(t *testing.T) {
	records := evidence()
	file := twoGroups(t, records, manifestOf(t, signer(t, 1), records))
	f, err := parquet.OpenFile(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Metadata().RowGroups) != 2 || f.NumRows() != int64(len(records)) {
		t.Fatalf("%d rows in %d groups", f.NumRows(), len(f.Metadata().RowGroups))
	}
	for _, g := range f.Metadata().RowGroups {
		if len(g.SortingColumns) > 0 {
			t.Errorf("it is said to be sorted by %v", g.SortingColumns)
		}
		for _, c := range g.Columns {
			m := &c.MetaData
			if got := fmt.Sprint(m.Statistics, m.SizeStatistics, m.EncodingStats, m.KeyValueMetadata, m.BloomFilterOffset, c.ColumnIndexLength, c.OffsetIndexLength); got !=
				fmt.Sprint(format.Statistics{}, format.SizeStatistics{}, m.EncodingStats[:0], m.KeyValueMetadata[:0], 0, 0, 0) {
				t.Errorf("column %q: %s", m.PathInSchema, got)
			}
		}
	}
	rows, err := parquet.Read[parquetRow](bytes.NewReader(file), int64(len(file)))
	if err != nil || len(rows) != len(records) {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for i, want := range rowsOf(records) {
		if !reflect.DeepEqual(nulls(rows[i]), nulls(want)) || string(rows[i].Payload) != string(want.Payload) || rows[i].RunSeq != want.RunSeq {
			t.Errorf("row %d is read as %+v, want %+v", i, rows[i], want)
		}
	}
}

// nulls are the optional columns of a row.
func nulls(r parquetRow) []any {
	return []any{r.StepID, r.EmittedBy, r.CausedBySignalID, r.ParentEventID, r.AppendedBy, r.TokenID, r.OriginalAt, r.OriginalSource, len(r.Inherited)}
}

// TestParquetStatistics: a query engine skips row groups and pages by what a file says of them, so
// that bounds, counts, filters and orders which are not those of the values would hide events in a
// file that verifies. Whatever is said is refused, also where it is so.
func TestParquetStatistics(t *testing.T) {
	records := evidence()
	manifest, key := manifestOf(t, signer(t, 1), records), signer(t, 1).PublicKey()
	file := twoGroups(t, records, manifest)
	same := func(_ string, h *pageHeader) any { return h }
	for what, file := range map[string][]byte{"as it is": file, "rewritten": rewritten(t, file, manifest, same)} {
		if report := verified(t, Parquet, file, key); len(report.Faults) > 0 || report.Events != uint64(len(records)) {
			t.Fatalf("%s: %+v", what, report)
		}
	}
	bounds := format.Statistics{MinValue: []byte("A"), MaxValue: []byte("B")}
	for what, change := range map[string]func(column string, h *pageHeader) any{
		"bounds of a page": func(column string, h *pageHeader) any {
			f := full(h)
			f.DataPageHeaderV2.V.Statistics = bounds
			return f
		},
		"a count of no nulls": func(column string, h *pageHeader) any { return full(h) },
		"a sorted dictionary": func(column string, h *pageHeader) any {
			if !h.Dictionary.Valid {
				return h
			}
			f := full(h)
			f.DictionaryPageHeader.V.IsSorted = true
			return f
		},
	} {
		found(t, what, verified(t, Parquet, rewritten(t, file, manifest, change), key), "its header has statistics")
	}
	for what, change := range map[string]func(d *dataHeader){
		"fewer nulls":  func(d *dataHeader) { d.NumNulls = 0 },
		"more rows":    func(d *dataHeader) { d.NumRows, d.NumValues = d.NumRows+1, d.NumValues+1 },
		"rows of none": func(d *dataHeader) { d.NumRows++ },
		"fewer rows":   func(d *dataHeader) { d.NumRows-- },
	} {
		for _, of := range []string{"original_persisted_at", "inherited", "event_type"} {
			changed := rewritten(t, file, manifest, func(column string, h *pageHeader) any {
				// else no page has these
				if column == of && h.Data.Valid && (what != "rows of none" || h.Data.V.NumValues > h.Data.V.NumRows) {
					change(&h.Data.V)
				}
				return h
			})
			if !bytes.Equal(changed, file) {
				found(t, what+" of "+of, verified(t, Parquet, changed, key))
			}
		}
	}
}

// TestParquetFooter: a footer says what its pages do, and nothing else.
func TestParquetFooter(t *testing.T) {
	records := evidence()
	manifest, key := manifestOf(t, signer(t, 1), records), signer(t, 1).PublicKey()
	file := twoGroups(t, records, manifest)
	begin := footerBegin(file)
	for what, change := range map[string]func(m *format.FileMetaData, c *format.ColumnChunk){
		// the type always writes it
		"a count of nulls": func(*format.FileMetaData, *format.ColumnChunk) {},
		"bounds":           func(_ *format.FileMetaData, c *format.ColumnChunk) { c.MetaData.Statistics.MaxValue = []byte("A") },
		"a filter":         func(_ *format.FileMetaData, c *format.ColumnChunk) { c.MetaData.BloomFilterOffset = 4 },
		"an index":         func(_ *format.FileMetaData, c *format.ColumnChunk) { c.ColumnIndexOffset, c.ColumnIndexLength = 4, 40 },
		"an order": func(m *format.FileMetaData, _ *format.ColumnChunk) {
			m.RowGroups[0].SortingColumns = []format.SortingColumn{{ColumnIdx: 3}}
		},
		"another file": func(_ *format.FileMetaData, c *format.ColumnChunk) { c.FilePath = "other.parquet" },
	} {
		var m format.FileMetaData
		if _, err := decode(file[begin:], &m); err != nil {
			t.Fatal(err)
		}
		change(&m, &m.RowGroups[0].Columns[1])
		found(t, what, verified(t, Parquet, withFooter(t, file, &m), key))
	}
	for what, change := range map[string]func(f *footer, c *footerColumn){
		"nothing":              func(*footer, *footerColumn) {},
		"fewer rows":           func(f *footer, _ *footerColumn) { f.NumRows-- },
		"fewer rows of one":    func(f *footer, _ *footerColumn) { f.RowGroups[0].NumRows-- },
		"fewer values":         func(_ *footer, c *footerColumn) { c.NumValues-- },
		"a smaller column":     func(_ *footer, c *footerColumn) { c.TotalCompressedSize-- },
		"another place":        func(_ *footer, c *footerColumn) { c.DataPageOffset++ },
		"without a dictionary": func(_ *footer, c *footerColumn) { c.DictionaryPageOffset = 0 },
		// 2 is PLAIN_DICTIONARY.
		"only a dictionary":    func(_ *footer, c *footerColumn) { c.Encoding = []format.Encoding{2, format.RLE} },
		"another writer":       func(f *footer, _ *footerColumn) { f.CreatedBy = "parquet-mr version 1.8.0" },
		"another version":      func(f *footer, _ *footerColumn) { f.Version = 1 },
		"another column":       func(f *footer, _ *footerColumn) { f.Schema[2].Name = "type" },
		"one row group":        func(f *footer, _ *footerColumn) { f.RowGroups = f.RowGroups[:1] },
		"groups the other way": func(f *footer, _ *footerColumn) { slices.Reverse(f.RowGroups) },
		"columns exchanged": func(f *footer, _ *footerColumn) {
			c := f.RowGroups[0].Columns
			c[3].MetaData.Path, c[4].MetaData.Path = c[4].MetaData.Path, c[3].MetaData.Path
		},
	} {
		var f footer
		if _, err := decode(file[begin:], &f); err != nil {
			t.Fatal(err)
		}
		change(&f, &f.RowGroups[0].Columns[1].MetaData)
		report := verified(t, Parquet, withFooter(t, file, &f), key)
		if what != "nothing" {
			found(t, what, report)
		} else if len(report.Faults) > 0 {
			t.Errorf("%s: %q", what, report.Faults)
		}
	}
	// The bytes between the last page and the footer belong to no column.
	more := append(bytes.Clone(file[:begin]), append([]byte("hidden"), file[begin:]...)...)
	found(t, "bytes between", verified(t, Parquet, more, key), "something between")
}

// TestParquetOfBefore: a file that an earlier build has written verifies, whatever the library has
// become since. To make another one where the format changes: os.WriteFile of twoGroups.
func TestParquetOfBefore(t *testing.T) {
	file, err := os.ReadFile("testdata/two_groups.parquet")
	if err != nil {
		t.Fatal(err)
	}
	if report := verified(t, Parquet, file, signer(t, 1).PublicKey()); len(report.Faults) > 0 || report.Events != uint64(len(evidence())) {
		t.Errorf("%+v", report)
	}
}

// splitter hands on what it takes in pieces.
type splitter struct {
	to *pageWriter
	n  int
}

func (s splitter) Write(p []byte) (int, error) {
	for piece := range slices.Chunk(p, s.n) {
		if _, err := s.to.Write(piece); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// TestPagesInPieces: what the library writes may come in pieces of any size.
func TestPagesInPieces(t *testing.T) {
	records := evidence()
	manifest := manifestOf(t, signer(t, 1), records)
	want := withManifestOf(t, Parquet, records, manifest)
	for n := 1; n < 50; n++ {
		var out bytes.Buffer
		w := newParquetWriter(&out)
		w.out.Reset(splitter{w.pages, n})
		for _, r := range records {
			if err := w.Write(r); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(manifest); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out.Bytes(), want) {
			t.Fatalf("in pieces of %d bytes another file comes out", n)
		}
	}
}
