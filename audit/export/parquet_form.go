package export

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"sync"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// A Parquet file of an export has only values: no statistics of pages, columns or row groups, no
// page index, no filter, no order. An engine skips parts that these exclude. If they were allowed,
// changed statistics could hide events in a file with unchanged values.
//
// The rest, page headers and the footer, is computed here from the pages, by the writer and by the
// verifier: a file with another footer is refused. The types are those of the format
// (parquet.thrift) without the fields that exports omit.

const (
	magic     = "PAR1"
	createdBy = "runlog version 1"
	// version of the format that a footer names.
	formatVersion = 2
	// maxHeaderBytes bounds the header of a page, as exports have it.
	maxHeaderBytes = 128
)

type pageHeader struct {
	Type             format.PageType               `thrift:"1,required"`
	UncompressedSize int32                         `thrift:"2,required"`
	CompressedSize   int32                         `thrift:"3,required"`
	CRC              int32                         `thrift:"4,optional"`
	Dictionary       thrift.Null[dictionaryHeader] `thrift:"7,optional"`
	Data             thrift.Null[dataHeader]       `thrift:"8,optional"`
}

type dictionaryHeader struct {
	NumValues int32           `thrift:"1,required"`
	Encoding  format.Encoding `thrift:"2,required"`
}

type dataHeader struct {
	NumValues                  int32             `thrift:"1,required"`
	NumNulls                   int32             `thrift:"2,required"`
	NumRows                    int32             `thrift:"3,required"`
	Encoding                   format.Encoding   `thrift:"4,required"`
	DefinitionLevelsByteLength int32             `thrift:"5,required"`
	RepetitionLevelsByteLength int32             `thrift:"6,required"`
	IsCompressed               thrift.Null[bool] `thrift:"7,optional"`
}

type footer struct {
	Version   int32                              `thrift:"1,required"`
	Schema    thrift.Slice[format.SchemaElement] `thrift:"2,required"`
	NumRows   int64                              `thrift:"3,required"`
	RowGroups thrift.Slice[footerGroup]          `thrift:"4,required"`
	KeyValues thrift.Slice[format.KeyValue]      `thrift:"5,optional"`
	CreatedBy string                             `thrift:"6,optional"`
}

type footerGroup struct {
	Columns       thrift.Slice[footerChunk] `thrift:"1,required"`
	TotalByteSize int64                     `thrift:"2,required"`
	NumRows       int64                     `thrift:"3,required"`
}

type footerChunk struct {
	FileOffset int64        `thrift:"2,required"` // 0: the format gave it up
	MetaData   footerColumn `thrift:"3,optional"`
}

type footerColumn struct {
	Type                  format.Type                   `thrift:"1,required"`
	Encoding              thrift.Slice[format.Encoding] `thrift:"2,required"`
	Path                  thrift.Slice[string]          `thrift:"3,required"`
	Codec                 format.CompressionCodec       `thrift:"4,required"`
	NumValues             int64                         `thrift:"5,required"`
	TotalUncompressedSize int64                         `thrift:"6,required"`
	TotalCompressedSize   int64                         `thrift:"7,required"`
	DataPageOffset        int64                         `thrift:"9,required"`
	DictionaryPageOffset  int64                         `thrift:"11,optional"`
}

// form is the constant part of all files.
type form struct {
	schema []format.SchemaElement
	leaves []footerColumn // the parts that do not depend on the pages
	levels []bool         // whether a column has levels
}

// theForm is computed once: the library exposes the elements of its schemas only in files.
var theForm = sync.OnceValues(func() (*form, error) {
	var empty bytes.Buffer
	if err := parquet.NewGenericWriter[any](&empty, parquetOptions()...).Close(); err != nil {
		return nil, err
	}
	file, err := parquet.OpenFile(bytes.NewReader(empty.Bytes()), int64(empty.Len()))
	if err != nil {
		return nil, err
	}
	f := &form{schema: file.Metadata().Schema}
	for _, path := range parquetSchema.Columns() {
		leaf, _ := parquetSchema.Lookup(path...)
		codec := leaf.Node.Compression()
		if codec == nil {
			codec = parquetCodec
		}
		f.leaves = append(f.leaves, footerColumn{Type: *leaf.Node.Type().PhysicalType(), Path: path, Codec: codec.CompressionCodec()})
		f.levels = append(f.levels, leaf.MaxDefinitionLevel > 0)
	}
	return f, nil
})

// chunk is a column of a row group, as its pages show.
type chunk struct {
	at         int64 // of the first page in the file
	dictionary int64 // bytes of the dictionary's page; 0: none
	packed     int64 // bytes of all pages and their headers
	unpacked   int64 // the same before compression
	values     int64
	rows       int64
	encodings  uint32 // one bit each
}

var errPage = errors.New("a page that exports do not have")

// add takes the next page, with the size of its header.
func (c *chunk) add(h *pageHeader, size int) error {
	if h.CompressedSize < 0 || h.UncompressedSize < 0 {
		return errPage
	}
	encoding := format.Encoding(0)
	switch {
	case h.Type == format.DictionaryPage && h.Dictionary.Valid && !h.Data.Valid && c.packed == 0:
		encoding = h.Dictionary.V.Encoding
		c.dictionary = int64(size) + int64(h.CompressedSize)
	case h.Type == format.DataPageV2 && h.Data.Valid && !h.Dictionary.Valid && h.Data.V.NumRows > 0 && h.Data.V.NumValues >= h.Data.V.NumRows:
		encoding = h.Data.V.Encoding
		c.values += int64(h.Data.V.NumValues)
		c.rows += int64(h.Data.V.NumRows)
	default:
		return errPage
	}
	if encoding < 0 || encoding >= 32 {
		return errPage
	}
	c.encodings |= 1 << encoding
	c.packed += int64(size) + int64(h.CompressedSize)
	c.unpacked += int64(size) + int64(h.UncompressedSize)
	return nil
}

// group are the columns of a row group.
type group []chunk

// footerOf returns the footer of a file with these pages.
func footerOf(groups []group, manifest string) ([]byte, error) {
	form, err := theForm()
	if err != nil {
		return nil, err
	}
	f := footer{Version: formatVersion, Schema: form.schema, CreatedBy: createdBy, KeyValues: []format.KeyValue{{Key: manifestKey, Value: manifest}}}
	for _, group := range groups {
		out := footerGroup{NumRows: group[0].rows, Columns: make([]footerChunk, len(group))}
		for i := range group {
			c, m := &group[i], &out.Columns[i].MetaData
			*m = form.leaves[i]
			set := c.encodings
			if form.levels[i] {
				set |= 1 << format.RLE
			}
			for ; set != 0; set &= set - 1 {
				m.Encoding = append(m.Encoding, format.Encoding(bits.TrailingZeros32(set)))
			}
			m.NumValues, m.TotalCompressedSize, m.TotalUncompressedSize = c.values, c.packed, c.unpacked
			m.DataPageOffset = c.at + c.dictionary
			if c.dictionary > 0 {
				m.DictionaryPageOffset = c.at
			}
			out.TotalByteSize += c.unpacked
		}
		f.NumRows += out.NumRows
		f.RowGroups = append(f.RowGroups, out)
	}
	return thrift.Marshal(new(thrift.CompactProtocol), &f)
}

// decode parses the start of some bytes, and returns the number of bytes used.
func decode(head []byte, v any) (int, error) {
	r := new(thrift.CompactProtocol).NewReaderFromBytes(head)
	err := thrift.NewDecoder(r).Decode(v)
	return r.BytesRead(), err
}

// parsePage parses the page header at the start of some bytes, and returns its size. A header in
// another form than the canonical one has fields that exports do not have.
func parsePage(head []byte) (h pageHeader, size int, err error) {
	size, err = decode(head, &h)
	var again []byte
	if err == nil {
		again, err = thrift.Marshal(new(thrift.CompactProtocol), &h)
	}
	if err != nil || !bytes.Equal(again, head[:size]) {
		err = fmt.Errorf("%w: its header has statistics, or was changed", errPage)
	}
	return h, size, err
}
