package storage

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/proto"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage/internal/keys"
)

// rows looks up rows, one key after the other. What it shows of either kind is as of the first
// question of the kind.
type rows struct {
	r pebble.Reader
	// new is for rows that most likely do not exist, old for those that do; nil until the first
	// question.
	new, old *pebble.Iterator
}

// find returns the row of a key, nil when there is none. It is good until the next call. The bloom
// filters are asked first, also those of the last level, which Get does not: most questions are
// about runs and keys that do not exist yet (D6).
func (f *rows) find(key []byte) ([]byte, error) { return f.seek(&f.new, key, true) }

// existing is find for a row that exists: the filters of the last level, which are large, could not
// say no.
func (f *rows) existing(key []byte) ([]byte, error) { return f.seek(&f.old, key, false) }

func (f *rows) seek(it **pebble.Iterator, key []byte, lastFilters bool) ([]byte, error) {
	if *it == nil {
		made, err := f.r.NewIter(&pebble.IterOptions{UseL6Filters: lastFilters})
		if err != nil {
			return nil, fmt.Errorf("storage: read: %w", err)
		}
		*it = made
	}
	if !(*it).SeekPrefixGE(key) || !bytes.Equal((*it).Key(), key) {
		return nil, (*it).Error()
	}
	return (*it).ValueAndErr()
}

func (f *rows) close() (err error) {
	for _, it := range []*pebble.Iterator{f.new, f.old} {
		if it != nil {
			err = errors.Join(err, it.Close())
		}
	}
	f.new, f.old = nil, nil
	return err
}

// ref names the run with an id in keys.
func (f *rows) ref(runID string) (ref runRef, found bool, err error) {
	row, err := f.find(keys.AppendRunID(nil, runID))
	if err != nil || row == nil {
		return runRef{}, false, err
	}
	ref, err = parseRunRef(row)
	return ref, err == nil, err
}

// identity of a run that exists.
func (f *rows) identity(ref runRef) (*recordv1.RunIdentity, error) {
	row, err := f.existing(keys.AppendIdentity(nil, ref))
	if err == nil && row == nil {
		err = fmt.Errorf("%w: run %d has no identity", errRow, ref.No)
	}
	if err != nil {
		return nil, err
	}
	m := &recordv1.RunIdentity{}
	return m, unmarshalRow(row, m)
}

// head of a run that exists.
func (f *rows) head(ref runRef) (head, error) {
	row, err := f.existing(keys.AppendHead(nil, ref))
	if err == nil && row == nil {
		err = fmt.Errorf("%w: run %d has no head", errRow, ref.No)
	}
	if err != nil {
		return head{}, err
	}
	return parseHead(row)
}

// metadata of a run, nil when it has none.
func (f *rows) metadata(ref runRef) (*recordv1.RunMetadata, error) {
	row, err := f.find(keys.AppendMetadata(nil, ref))
	if err != nil || row == nil {
		return nil, err
	}
	m := &recordv1.RunMetadata{}
	return m, unmarshalRow(row, m)
}

func unmarshalRow(row []byte, m proto.Message) error {
	if err := proto.Unmarshal(row, m); err != nil {
		return fmt.Errorf("%w: %w", errRow, err)
	}
	return nil
}
