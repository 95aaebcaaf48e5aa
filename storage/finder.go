package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/proto"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage/internal/keys"
)

// finder looks up rows, one key after the other. It asks the bloom filters first, also those of the last level, which
// Get does not: most questions are about runs and keys that do not exist yet (D6). What it shows is as of its first
// question.
type finder struct {
	r  pebble.Reader
	it *pebble.Iterator // nil until the first question
}

// find returns the row of a key, nil when there is none. It is good until the next call.
func (f *finder) find(key []byte) ([]byte, error) {
	if f.it == nil {
		it, err := f.r.NewIter(&pebble.IterOptions{UseL6Filters: true})
		if err != nil {
			return nil, fmt.Errorf("storage: read: %w", err)
		}
		f.it = it
	}
	if !f.it.SeekPrefixGE(key) || !bytes.Equal(f.it.Key(), key) {
		return nil, f.it.Error()
	}
	return f.it.ValueAndErr()
}

func (f *finder) close() error {
	if f.it == nil {
		return nil
	}
	it := f.it
	f.it = nil
	return it.Close()
}

// runNo of a run.
func (f *finder) runNo(runID string) (no uint64, found bool, err error) {
	row, err := f.find(keys.AppendRunNo(nil, runID))
	if err != nil || row == nil {
		return 0, false, err
	}
	if len(row) != 8 {
		return 0, false, fmt.Errorf("%w: run number of %d bytes", errRow, len(row))
	}
	return binary.BigEndian.Uint64(row), true, nil
}

// identity of a run that exists.
func (f *finder) identity(no uint64) (*recordv1.RunIdentity, error) {
	m := &recordv1.RunIdentity{}
	found, err := f.message(keys.AppendIdentity(nil, no), m)
	if err == nil && !found {
		err = fmt.Errorf("%w: run %d has no identity", errRow, no)
	}
	return m, err
}

// head of a run that exists.
func (f *finder) head(no uint64) (head, error) {
	row, err := f.find(keys.AppendHead(nil, no))
	if err == nil && row == nil {
		err = fmt.Errorf("%w: run %d has no head", errRow, no)
	}
	if err != nil {
		return head{}, err
	}
	return parseHead(row)
}

// metadata of a run, nil when it has none.
func (f *finder) metadata(no uint64) (*recordv1.RunMetadata, error) {
	m := &recordv1.RunMetadata{}
	found, err := f.message(keys.AppendMetadata(nil, no), m)
	if err != nil || !found {
		return nil, err
	}
	return m, nil
}

func (f *finder) message(key []byte, m proto.Message) (found bool, err error) {
	row, err := f.find(key)
	if err != nil || row == nil {
		return false, err
	}
	if err := proto.Unmarshal(row, m); err != nil {
		return false, errors.Join(errRow, err)
	}
	return true, nil
}
