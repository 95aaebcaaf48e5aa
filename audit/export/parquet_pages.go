package export

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// pageWriter is between the Parquet library and a file. The library writes statistics into every
// page header, and statistics and page indexes after the last page. pageWriter omits these, and
// writes a footer for the rest.
//
//	library ──► PAR1, pages ──► pageWriter ──► PAR1, pages without statistics, footerOf(pages)
type pageWriter struct {
	out  io.Writer
	at   int64  // in the file
	skip int    // remaining bytes of the library's own magic
	head []byte // the next page's header, as far as received
	left int    // remaining bytes of the current page
	// rows of the row group being flushed. Its columns follow one another, and each ends with this
	// number.
	rows   int64
	column chunk
	group  group // the columns before
	groups []group
}

func newPageWriter(out io.Writer) *pageWriter { return &pageWriter{out: out, skip: len(magic)} }

// Write takes the library's output of a flushed row group, in pieces of any size.
func (w *pageWriter) Write(p []byte) (int, error) {
	whole := len(p)
	n := min(w.skip, len(p))
	w.skip, p = w.skip-n, p[n:]
	for len(p) > 0 {
		if w.left == 0 {
			rest, err := w.header(p)
			if err != nil {
				return 0, err
			}
			p = rest
		}
		n := min(w.left, len(p))
		if err := w.put(p[:n]); err != nil {
			return 0, err
		}
		w.left, p = w.left-n, p[n:]
		if len(w.head) == 0 && w.left == 0 {
			w.endPage()
		}
	}
	return whole, nil
}

func (w *pageWriter) put(p []byte) error {
	n, err := w.out.Write(p)
	w.at += int64(n)
	return err
}

// header collects the header of a page, and writes its own once it is complete. It returns the
// bytes after it.
func (w *pageWriter) header(p []byte) (rest []byte, err error) {
	w.head = append(w.head, p...)
	var full format.PageHeader
	size, err := decode(w.head, &full)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, nil // the rest follows with the next piece
	}
	if err != nil {
		return nil, err
	}
	h := pageHeader{Type: full.Type, UncompressedSize: full.UncompressedPageSize, CompressedSize: full.CompressedPageSize, CRC: full.CRC}
	if d := &full.DictionaryPageHeader; d.Valid {
		h.Dictionary = thrift.New(dictionaryHeader{d.V.NumValues, d.V.Encoding})
	}
	if d := &full.DataPageHeaderV2; d.Valid {
		h.Data = thrift.New(dataHeader{
			d.V.NumValues, d.V.NumNulls, d.V.NumRows, d.V.Encoding, d.V.DefinitionLevelsByteLength, d.V.RepetitionLevelsByteLength, d.V.IsCompressed,
		})
	}
	text, err := thrift.Marshal(new(thrift.CompactProtocol), &h)
	if err == nil && w.at == 0 {
		err = w.put([]byte(magic))
	}
	if err == nil && w.column.packed == 0 {
		w.column.at = w.at
	}
	if err == nil {
		err = w.column.add(&h, len(text))
	}
	if err == nil {
		err = w.put(text)
	}
	rest = p[len(p)-(len(w.head)-size):]
	w.head, w.left = w.head[:0], int(h.CompressedSize)
	return rest, err
}

// endPage ends the column, and the row group, which have all of their rows.
func (w *pageWriter) endPage() {
	if w.column.rows < w.rows {
		return
	}
	w.group, w.column = append(w.group, w.column), chunk{}
	if len(w.group) == len(columns) {
		w.groups, w.group = append(w.groups, w.group), nil
	}
}

// close ends the file.
func (w *pageWriter) close(manifest string) error {
	if len(w.head) > 0 || w.left > 0 || len(w.group) > 0 || w.column.packed > 0 {
		return io.ErrUnexpectedEOF // the library has kept something back
	}
	if w.at == 0 {
		if err := w.put([]byte(magic)); err != nil {
			return err
		}
	}
	text, err := footerOf(w.groups, manifest)
	if err != nil {
		return err
	}
	return w.put(append(binary.LittleEndian.AppendUint32(text, uint32(len(text))), magic...))
}
