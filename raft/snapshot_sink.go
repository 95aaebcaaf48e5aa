package raft

import (
	"errors"
	"fmt"
	"io"

	hraft "github.com/hashicorp/raft"

	"runlog/raft/internal/wal"
	"runlog/storage"
)

// snapshotSink receives the metadata of a local snapshot, or the bytes of a leader's. It is used by
// one goroutine.
type snapshotSink struct {
	s      *snapshotStore
	id     string
	meta   hraft.SnapshotMeta
	last   wal.EntryID // that a leader's snapshot covers
	closed bool

	pipe *io.PipeWriter // to the receiving goroutine; nil: no byte received yet
	done chan struct{}  // closed when that goroutine has ended, which sets err and received
	err  error
	// received is the complete snapshot. After Close the snapshotStore owns it.
	received *storage.Received
}

var _ hraft.SnapshotSink = (*snapshotSink)(nil)

// ID implements hraft.SnapshotSink.
func (k *snapshotSink) ID() string { return k.id }

// record makes it a local snapshot.
func (k *snapshotSink) record(meta snapshotMeta) (err error) {
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	if k.s.mu.incoming != nil {
		return errInstalling
	}
	if r := k.s.mu.records; len(r) > 0 && r[0].Meta.Index >= k.meta.Index {
		if r[0].Meta.Index > k.meta.Index {
			return errOvertaken
		}
		// The snapshot adds nothing. The record of an installed snapshot must stay.
		k.id = r[0].Meta.ID
		return nil
	}
	own, err := k.s.logs.Entry(k.meta.Index)
	if err != nil {
		return err
	}
	meta.Nonce = own.Nonce
	k.id, err = k.s.recordLocked(&k.meta, meta)
	return err
}

// Write passes bytes of a leader to the store, and blocks while the store is busy.
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
		// Later writes get the error. After success the leader may send nothing more.
		_ = r.CloseWithError(k.err)
	}()
	return nil
}

// Close returns when the received snapshot is complete, checked and on stable storage, for Restore
// to install.
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
	var old *storage.BuildTooOldError
	if errors.As(k.err, &old) {
		// The leader would send the snapshot again and again.
		k.s.fail(fmt.Errorf("raft: receive snapshot: %w", k.err))
	}
	return k.err
}

// fits compares the received snapshot with the leader's announcement. It may end before the
// announced index if no entry between concerns the store; see describe.
func (k *snapshotSink) fits() error {
	a := &k.received.Applied
	if a.Index < k.meta.Index || a.Index == k.meta.Index && a.Term == k.meta.Term {
		return nil
	}
	k.received.Discard()
	return fmt.Errorf("raft: receive snapshot: entry %d, term %d announced; entry %d, term %d received",
		k.meta.Index, k.meta.Term, a.Index, a.Term)
}

// errCanceled is the read error in the middle of a snapshot whose sender disconnected.
var errCanceled = errors.New("raft: snapshot incomplete")

// Cancel discards the received bytes.
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
