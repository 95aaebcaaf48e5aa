package record

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/proto"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage/internal/keys"
)

// Rows looks up rows, one key after the other. What it shows of either kind is as of the first
// question of the kind.
type Rows struct {
	Reader pebble.Reader
	// Known: the rows most likely all exist. Everything that it shows is then as of one moment.
	Known bool
	// new is for rows that most likely do not exist, old for those that do; nil until the first
	// question.
	new, old *pebble.Iterator
	// missed is the key of the last Find that found nothing: a command that makes a run asks for it
	// more than once.
	missed []byte
}

// Find returns the row of a key, nil when there is none. It is good until the next call. The bloom
// filters are asked first, also those of the last level, which Get does not: most questions are
// about runs and keys that do not exist yet (D6).
func (f *Rows) Find(key []byte) ([]byte, error) {
	if f.Known {
		return f.existing(key)
	}
	if len(key) > 0 && bytes.Equal(key, f.missed) {
		return nil, nil
	}
	row, err := f.seek(&f.new, key, true)
	if row == nil && err == nil {
		f.missed = append(f.missed[:0], key...)
	}
	return row, err
}

// existing is find for a row that exists: the filters of the last level, which are large, could not
// say no.
func (f *Rows) existing(key []byte) ([]byte, error) { return f.seek(&f.old, key, false) }

func (f *Rows) seek(it **pebble.Iterator, key []byte, lastFilters bool) ([]byte, error) {
	if err := f.open(it, lastFilters); err != nil {
		return nil, err
	}
	if !(*it).SeekPrefixGE(key) || !bytes.Equal((*it).Key(), key) {
		return nil, (*it).Error()
	}
	return (*it).ValueAndErr()
}

func (f *Rows) open(it **pebble.Iterator, lastFilters bool) error {
	if *it != nil {
		return nil
	}
	made, err := f.Reader.NewIter(&pebble.IterOptions{UseL6Filters: lastFilters})
	if err != nil {
		return fmt.Errorf("storage: read: %w", err)
	}
	*it = made
	return nil
}

// Close releases the iterators. Rows may be used again after it.
func (f *Rows) Close() (err error) {
	for _, it := range []*pebble.Iterator{f.new, f.old} {
		if it != nil {
			err = errors.Join(err, it.Close())
		}
	}
	f.new, f.old, f.missed = nil, nil, f.missed[:0]
	return err
}

// Ref names the run with an id in keys.
func (f *Rows) Ref(runID string) (ref RunRef, found bool, err error) {
	row, err := f.Find(keys.AppendRunID(nil, runID))
	if err != nil || row == nil {
		return RunRef{}, false, err
	}
	ref, err = parseRunRef(row)
	return ref, err == nil, err
}

// Identity of a run that exists.
func (f *Rows) Identity(ref RunRef) (*recordv1.RunIdentity, error) {
	row, err := f.existing(keys.AppendIdentity(nil, ref))
	if err == nil && row == nil {
		err = fmt.Errorf("%w: run %d has no identity", ErrRow, ref.No)
	}
	if err != nil {
		return nil, err
	}
	m := &recordv1.RunIdentity{}
	return m, UnmarshalRow(row, m)
}

// Head of a run that exists.
func (f *Rows) Head(ref RunRef) (Head, error) {
	row, err := f.existing(keys.AppendHead(nil, ref))
	if err == nil && row == nil {
		err = fmt.Errorf("%w: run %d has no head", ErrRow, ref.No)
	}
	if err != nil {
		return Head{}, err
	}
	return ParseHead(row)
}

// Metadata of a run, nil when it has none.
func (f *Rows) Metadata(ref RunRef) (*recordv1.RunMetadata, error) {
	row, err := f.Find(keys.AppendMetadata(nil, ref))
	if err != nil || row == nil {
		return nil, err
	}
	m := &recordv1.RunMetadata{}
	return m, UnmarshalRow(row, m)
}

// UnmarshalRow decodes a row that is a message.
func UnmarshalRow(row []byte, m proto.Message) error {
	if err := proto.Unmarshal(row, m); err != nil {
		return fmt.Errorf("%w: %w", ErrRow, err)
	}
	return nil
}

// Deterministic marshals what is stored as a message: the same bytes on every node.
var Deterministic = proto.MarshalOptions{Deterministic: true}

// GetRow returns a copy of a value; nil: there is no row.
func GetRow(r pebble.Reader, key []byte) ([]byte, error) {
	row, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("storage: read row %q: %w", key, err)
	}
	value := CloneValue(row)
	return value, closer.Close()
}

// CloneValue copies the value of a row, which is never nil.
func CloneValue(v []byte) []byte { return append(make([]byte, 0, len(v)), v...) }
