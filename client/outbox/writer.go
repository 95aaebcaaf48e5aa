package outbox

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// writer is the goroutine that writes the file. It owns its fields.
type writer struct {
	*Outbox

	// end is where the next frame goes.
	// Invariant: what was acknowledged lies before it, on stable storage.
	end int64
	// unsynced: something was written since the last fsync that no caller waits for.
	unsynced bool
	// stale: a removal or rejection could not be written. A new file has it.
	stale bool
	// broken is why nothing is acknowledged until all live records are in a new, synced file.
	broken error
	// retry is the time of the next attempt to write a new file after one that failed.
	retry time.Time
}

// run writes what is queued until the outbox is closed.
func (w *writer) run() {
	defer close(w.stopped)
	for {
		batch, closed := w.take()
		switch {
		case len(batch) > 0:
			w.commit(batch)
			w.compact()
		case closed:
			err := errors.Join(w.flush(), w.retire(), w.lock.Close())
			w.mu.Lock()
			w.mu.err = err
			w.mu.Unlock()
			close(w.ready)
			return
		default:
			<-w.wake
		}
	}
}

// take takes what is queued.
func (w *writer) take() (batch []*op, closed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	batch, w.mu.queue = w.mu.queue, nil
	if w.mu.busy = len(batch) > 0; !w.mu.busy {
		w.rested.Broadcast()
	}
	return batch, w.mu.closed
}

// commit writes a batch, with one fsync for all of it, and answers its callers.
func (w *writer) commit(batch []*op) {
	waited := slices.ContainsFunc(batch, (*op).wants)
	if w.broken != nil && waited && !w.opts.now().Before(w.retry) {
		if w.rewrite() == nil { // Otherwise the file is still broken.
			cover(batch)
		}
	}
	var added []*entry
	err := w.broken
	if err == nil {
		added, err = w.append(batch, waited)
	}
	if err != nil {
		w.stale = w.stale || slices.ContainsFunc(batch, func(p *op) bool { return p.kind != kindPut && !p.covered })
	}
	w.mu.Lock()
	for _, e := range added {
		w.mu.index.add(e)
		w.mu.next = e.id + 1
	}
	for _, p := range batch {
		if p.kind == kindPut {
			w.mu.queued -= int64(frameBytes(len(p.data)))
		}
	}
	w.mu.Unlock()
	for _, p := range batch {
		if p.wants() {
			p.answered <- err
		}
	}
	if len(added) > 0 {
		select {
		case w.ready <- struct{}{}:
		default:
		}
	}
}

// append writes a batch behind the other frames and returns the records that it has added.
func (w *writer) append(batch []*op, sync bool) ([]*entry, error) {
	w.mu.Lock()
	f, id := w.mu.file, w.mu.next
	w.mu.Unlock()
	var text []byte
	var added []*entry
	for _, p := range batch {
		if p.covered {
			continue
		}
		if p.kind == kindPut {
			p.id = id
			id++
		}
		encoded := p.encode()
		if p.kind == kindPut {
			added = append(added, &entry{id: p.id, offset: w.end + int64(len(text)), size: len(encoded)})
		}
		text = append(text, encoded...)
	}
	if len(text) == 0 {
		return nil, nil
	}
	if _, err := f.WriteAt(text, w.end); err != nil {
		return nil, w.undo(f, err)
	}
	if w.unsynced = true; sync {
		if err := f.Sync(); err != nil {
			w.fail(err)
			_ = f.Truncate(w.end) // So that a crash does not bring the failed Puts back.
			return nil, w.broken
		}
		w.unsynced = false
	}
	w.end += int64(len(text))
	return added, nil
}

// undo removes the beginning of a batch whose write failed, such as on a full disk. If that
// succeeds, the file is as it was before, and the next batch may succeed.
func (w *writer) undo(f file, cause error) error {
	err := f.Truncate(w.end)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		w.fail(err)
	} else {
		w.unsynced = false
	}
	w.opts.Logger.Warn("cannot write to the outbox", "path", w.path, "err", cause)
	return fmt.Errorf("outbox: write to %s: %w; earlier records are safe", w.path, cause)
}

// fail stops the acknowledging of Puts. After a failed fsync, the operating system may have dropped
// what was written and may report success for the next fsync.
func (w *writer) fail(cause error) {
	w.broken = fmt.Errorf("outbox: sync %s: %w; earlier records are safe, and new ones are refused until the file can be written again", w.path, cause)
	w.retry = w.opts.now().Add(retryEvery)
	w.opts.Logger.Warn("cannot sync the outbox", "path", w.path, "err", cause)
}

// compact writes a new file if more than half of this one is dead.
func (w *writer) compact() {
	w.mu.Lock()
	live := w.mu.index.bytes
	w.mu.Unlock()
	dead := w.end - headerBytes - live
	if w.broken != nil || dead <= max(live, w.opts.compactBytes) || w.opts.now().Before(w.retry) {
		return
	}
	_ = w.rewrite() // A file that is too large is no failure; rewrite has logged it.
}

// flush makes everything durable that was written.
func (w *writer) flush() error {
	if w.broken != nil || w.stale {
		return w.rewrite()
	}
	if !w.unsynced {
		return nil
	}
	w.mu.Lock()
	f := w.mu.file
	w.mu.Unlock()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("outbox: sync %s: %w; some records may be sent again", w.path, err)
	}
	return nil
}
