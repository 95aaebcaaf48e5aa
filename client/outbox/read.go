package outbox

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
)

// ErrUnreadable is the cause of an error about a record that was damaged since the file was opened.
// When the file is opened again, it is repaired.
var ErrUnreadable = errors.New("outbox: a record cannot be read")

// Pending yields the pending records, the oldest first. Records that are put meanwhile are yielded
// too, and those that are removed meanwhile may not be. With an error that wraps ErrUnreadable
// comes a Record that has an ID only, and others follow.
func (o *Outbox) Pending() iter.Seq2[Record, error] { return o.records(pending) }

// Rejected yields the records that the server has refused for good, as Pending does.
func (o *Outbox) Rejected() iter.Seq2[Record, error] { return o.records(rejected) }

func (o *Outbox) records(in state) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		var last uint64
		for {
			r, err := o.after(last, in)
			if err == nil && r.ID == 0 || !yield(r, err) || r.ID == 0 {
				return
			}
			last = r.ID
		}
	}
}

// after reads the first record above an id; the zero Record: there is none.
func (o *Outbox) after(id uint64, in state) (Record, error) {
	o.mu.Lock()
	if o.mu.closed {
		o.mu.Unlock()
		return Record{}, ErrClosed
	}
	e := o.mu.index.next(id, in)
	if e == nil {
		o.mu.Unlock()
		return Record{}, nil
	}
	found, f := *e, o.acquireLocked()
	o.mu.Unlock()
	r, err := readRecord(f, &found)
	return r, errors.Join(err, o.release(f))
}

// readRecord reads the record of an entry.
func readRecord(f io.ReaderAt, e *entry) (Record, error) {
	text := make([]byte, e.size)
	_, err := f.ReadAt(text, e.offset)
	var put frame
	if err == nil {
		put, err = decodeFrame(bytes.Trim(text, "\x00"))
	}
	if err == nil && (put.kind != kindPut || put.id != e.id) {
		err = errFrame
	}
	r := Record{ID: e.id, Parked: put.at, Reason: e.reason, RejectedAt: e.rejectedAt, Request: &runlogv1.AppendEventsRequest{}}
	if err == nil {
		err = proto.Unmarshal(put.data, r.Request)
	}
	if err != nil {
		return Record{ID: e.id}, fmt.Errorf("%w: id %d at byte %d: %w", ErrUnreadable, e.id, e.offset, err)
	}
	return r, nil
}

// View is an outbox that is read only. Another process may have it open, and write to it.
type View struct {
	scan
	file file
}

// Read opens the outbox of a path for reading. It takes no lock, and repairs nothing. The View has
// the records of this moment.
func Read(path string) (*View, error) {
	f, err := osFiles{}.Open(path, os.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	size, err := f.Size()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("outbox: %w", err), f.Close())
	}
	found, err := scanFile(f, size)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("outbox: read %s: %w", path, err), f.Close())
	}
	return &View{scan: *found, file: f}, nil
}

// Recovery says what is damaged. Torn may be a write of the process that has the outbox open.
func (v *View) Recovery() Recovery { return v.recovery }

// Records yields all records, pending and rejected, the oldest first; errors are those of Pending.
func (v *View) Records() iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for _, e := range v.index.live() {
			if !yield(readRecord(v.file, e)) {
				return
			}
		}
	}
}

// Close closes the file.
func (v *View) Close() error { return v.file.Close() }
