package export

import (
	"io"
	"reflect"
	"strings"
	"unsafe"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/snappy"

	"runlog/proto/contract"
)

const (
	// manifestKey has the manifest among the key-value metadata of a Parquet file.
	manifestKey = "runlog.manifest"
	// A row group is kept in memory until it is complete: at a number of rows, or of bytes before
	// compression.
	groupRows  = 100_000
	groupBytes = 64 << 20
	// rowsAtOnce are between two looks at the size of a row group. A reader takes as many together.
	rowsAtOnce = 256
)

// parquetSchema is the schema of a file: the columns of CSV, with types. Absent texts and times are
// null.
var parquetSchema = parquet.NewSchema("event", parquet.SchemaOf(reflect.New(rowType()).Interface()))

// rowType returns the type of a row. Only its schema is used: rows are written by the column.
func rowType() reflect.Type {
	var row []reflect.StructField
	for i := range fields {
		f := &fields[i]
		column := reflect.StructField{Name: strings.ToUpper(f.Column[:1]) + f.Column[1:], Type: reflect.TypeFor[string]()}
		tag := f.Column
		if f.Optional {
			tag += ",optional"
		}
		switch f.Kind {
		case contract.KindText:
			tag += textStorage(f)
		case contract.KindCount, contract.KindNumber:
			column.Type = reflect.TypeFor[int64]()
		case contract.KindTime:
			column.Type = reflect.TypeFor[int64]()
			tag += ",timestamp(nanosecond)"
		case contract.KindLine:
			tag += ",dict"
		case contract.KindSalt, contract.KindDigest:
			tag += ",uncompressed" // no codec shortens them
		case contract.KindNames:
			column.Type = reflect.TypeFor[[]string]()
			tag += ",list"
		case contract.KindEventID, contract.KindObject:
		default:
			panic("export: a field that has no type in Parquet: " + f.Name)
		}
		column.Tag = reflect.StructTag(`parquet:"` + tag + `"`)
		row = append(row, column)
	}
	return reflect.StructOf(row)
}

// textStorage returns how a column of texts is stored. A dictionary is for texts that many events
// share.
func textStorage(f *contract.Field) string {
	switch {
	case f.Name == "idempotencyKey":
		return ",uncompressed" // most are digests
	case f.Varied:
		return ""
	}
	return ",dict"
}

// parquetCodec compresses the pages of columns without a codec of their own.
var parquetCodec = &snappy.Codec{}

func parquetOptions() []parquet.WriterOption {
	// Without a buffer, a flush has written everything when it returns.
	return []parquet.WriterOption{parquetSchema, parquet.Compression(parquetCodec), parquet.DataPageVersion(2), parquet.DataPageStatistics(false), parquet.WriteBufferSize(0)}
}

// writtenAtOnce are the rows that the Parquet library gets together. It ends a page between such
// batches alone, so that another number makes another file.
const writtenAtOnce = 64

// parquetWriter gathers the values of some rows by the column: the library is fastest with batches.
type parquetWriter struct {
	out   *parquet.GenericWriter[any]
	pages *pageWriter
	// columns are the values of the rows that the library has not got.
	columns [][]parquet.Value
	rows    int    // since the last flush
	texts   []byte // of these rows: texts that cannot share other memory
	group   struct{ rows, bytes int }
}

func newParquetWriter(out io.Writer) *parquetWriter {
	pages := newPageWriter(out)
	return &parquetWriter{out: parquet.NewGenericWriter[any](pages, parquetOptions()...), pages: pages, columns: make([][]parquet.Value, len(fields))}
}

func (w *parquetWriter) Write(r *Record) error {
	for k := range fields {
		w.take(k, (*contract.Recorded)(r))
	}
	w.rows++
	w.group.bytes += len(r.Payload) + 1024
	if w.rows == rowsAtOnce || len(w.texts) >= bufferBytes || w.group.bytes >= groupBytes {
		return w.flush()
	}
	if w.rows%writtenAtOnce == 0 {
		return w.writeColumns()
	}
	return nil
}

func (w *parquetWriter) flush() error {
	err := w.writeColumns()
	w.group.rows += w.rows
	w.rows, w.texts = 0, w.texts[:0]
	if err == nil && (w.group.rows >= groupRows || w.group.bytes >= groupBytes) {
		err = w.endGroup()
	}
	return err
}

// writeColumns passes the values to the library, which copies them.
func (w *parquetWriter) writeColumns() error {
	for k, column := range w.out.ColumnWriters() {
		if len(w.columns[k]) == 0 {
			continue
		}
		if _, err := column.WriteRowValues(w.columns[k]); err != nil {
			return err
		}
		w.columns[k] = w.columns[k][:0]
	}
	return nil
}

// endGroup writes the row group.
func (w *parquetWriter) endGroup() error {
	w.pages.rows = int64(w.group.rows)
	w.group.rows, w.group.bytes = 0, 0
	return w.out.Flush()
}

func (w *parquetWriter) Close(manifest string) error {
	if err := w.flush(); err != nil {
		return err
	}
	if err := w.endGroup(); err != nil {
		return err
	}
	return w.pages.close(manifest) // the library is not closed: it would write an end of its own
}

// Definition levels of an optional column and of a list.
const (
	levelNull = iota
	levelPresent
)

// take appends a record's value to those of a column.
func (w *parquetWriter) take(k int, r *contract.Recorded) {
	f := &fields[k]
	var v parquet.Value
	var present bool
	switch f.Kind {
	case contract.KindText:
		v, present = textValue(*f.Text(r)), *f.Text(r) != ""
	case contract.KindCount:
		v = parquet.Int64Value(int64(*f.Count(r)))
	case contract.KindNumber:
		v = parquet.Int64Value(int64(*f.Number(r)))
	case contract.KindTime:
		v, present = parquet.Int64Value(*f.Time(r)), *f.Time(r) != 0
	case contract.KindEventID:
		v = w.text(appendUUID(w.texts, *f.EventID(r)))
	case contract.KindLine:
		v = textValue(f.Line(r).String())
	case contract.KindSalt:
		v = w.text(appendHex(w.texts, f.Salt(r)[:]))
	case contract.KindDigest:
		v = w.text(appendHex(w.texts, f.Digest(r)[:]))
	case contract.KindNames:
		w.columns[k] = appendNameValues(w.columns[k], *f.Names(r), k)
		return
	case contract.KindObject:
		if f.Optional { // few events have one; texts would be flushed earlier
			v, present = textValue(string(*f.Object(r))), len(*f.Object(r)) > 0
		} else {
			v = w.text(append(w.texts, *f.Object(r)...))
		}
	default:
		panic("export: a field that has no value in Parquet: " + f.Name)
	}
	switch {
	case f.Optional && present:
		v = v.Level(0, levelPresent, k)
	case f.Optional:
		v = parquet.NullValue().Level(0, levelNull, k)
	}
	w.columns[k] = append(w.columns[k], v)
}

// textValue returns a text as a value that shares its memory.
func textValue(text string) parquet.Value {
	return parquet.ByteArrayValue(unsafe.Slice(unsafe.StringData(text), len(text)))
}

// text returns the texts appended since an offset.
func (w *parquetWriter) text(texts []byte) parquet.Value {
	from := len(w.texts)
	w.texts = texts
	return parquet.ByteArrayValue(texts[from:])
}

// appendNameValues appends the names of inherited fields, a list that is null without one.
func appendNameValues(values []parquet.Value, absent contract.Absent, k int) []parquet.Value {
	repeated := 0
	for i := range inheritable {
		if f := &inheritable[i]; absent&f.Absent != 0 {
			values, repeated = append(values, textValue(f.Name).Level(repeated, levelPresent, k)), 1
		}
	}
	if repeated == 0 {
		values = append(values, parquet.NullValue().Level(0, levelNull, k))
	}
	return values
}
