package raft

import (
	"errors"
	"fmt"
	"io"

	hraft "github.com/hashicorp/raft"

	"runlog/storage"
)

// snapshotSink takes the metadata of a local snapshot, or the bytes of one that comes from a
// leader. One goroutine uses it.
type snapshotSink struct {
	s      *snapshotStore
	id     string
	meta   hraft.SnapshotMeta
	closed bool

	pipe *io.PipeWriter // to the goroutine that receives; nil: no byte has come
	done chan struct{}  // closed when that has ended, which sets what follows
	err  error
	// received is what has come, whole. From Close on it is the snapshotStore's.
	received *storage.Received
}

var _ hraft.SnapshotSink = (*snapshotSink)(nil)

// ID is hashicorp/raft's.
func (k *snapshotSink) ID() string { return k.id }

// record makes it a local snapshot.
func (k *snapshotSink) record(meta snapshotMeta) (err error) {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	if k.s.mu.incoming != nil {
		return errInstalling
	}
	if r := k.s.mu.records; len(r) > 0 && r[0].Meta.Index >= k.meta.Index {
		// Nothing is new; and one that was installed must stay known as such.
		k.id = r[0].Meta.ID
		return nil
	}
	k.id, err = k.s.recordLocked(&k.meta, meta)
	return err
}

// Write takes bytes from a leader, and hands them to the store at the store's pace.
func (k *snapshotSink) Write(p []byte) (int, error) {
	if k.pipe == nil {
		if err := k.receive(); err != nil {
			return 0, err
		}
	}
	return k.pipe.Write(p)
}

// receive begins to receive. Close or Cancel joins the goroutine.
func (k *snapshotSink) receive() error {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	if k.s.mu.incoming != nil {
		return errInstalling
	}
	k.s.mu.incoming = k
	var r *io.PipeReader
	r, k.pipe = io.Pipe()
	k.done = make(chan struct{})
	go func() {
		defer close(k.done)
		k.received, k.err = k.s.store.Receive(r)
		// What is still written meets the reason. After success nothing may come.
		_ = r.CloseWithError(k.err)
	}()
	return nil
}

// Close returns when what came is whole, checked and on stable storage, for Restore to install.
func (k *snapshotSink) Close() error {
	if k.closed || k.pipe == nil {
		k.closed = true
		return nil
	}
	k.closed = true
	_ = k.pipe.Close() // never fails
	<-k.done
	if k.err == nil {
		k.err = k.fits()
	}
	if k.err != nil {
		k.s.end(k)
	}
	return k.err
}

// fits compares what came with what the leader said of it: it may end before the index where only
// entries lie between that are none of the store's; see describe.
func (k *snapshotSink) fits() error {
	a := &k.received.Applied
	if a.Index < k.meta.Index || a.Index == k.meta.Index && a.Term == k.meta.Term {
		return nil
	}
	k.received.Discard()
	return fmt.Errorf("raft: a snapshot of entry %d, term %d, was announced, and one of entry %d, term %d, came",
		k.meta.Index, k.meta.Term, a.Index, a.Term)
}

// errCanceled is what the store meets in the middle of a snapshot whose sender went away.
var errCanceled = errors.New("raft: the snapshot did not come to its end")

// Cancel gives up what came.
func (k *snapshotSink) Cancel() error {
	if k.closed || k.pipe == nil {
		k.closed = true
		return nil
	}
	k.closed = true
	_ = k.pipe.CloseWithError(errCanceled) // never fails
	<-k.done
	if k.received != nil {
		k.received.Discard()
	}
	k.s.end(k)
	return nil
}
