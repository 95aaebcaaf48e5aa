package outbox

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
)

// op is work for the writer: a put, a removal or a rejection.
type op struct {
	frame
	// answered gets the error, or nil. It is nil if no caller waits.
	answered chan error
	// covered: the file has been replaced by one with the effect of this removal or rejection.
	covered bool
}

// wants reports whether a caller waits until the operation is on stable storage.
func (p *op) wants() bool { return p.answered != nil }

// Put stores a request and returns its id once the request is on stable storage. Concurrent Puts
// share an fsync. Put keeps no reference to req, and does not check its events: what the server
// refuses is found when it is sent.
//
// If Put fails, the request is not in the outbox, and records that were put before are safe. There
// are two exceptions: after an *UnsettledError, and after a crash that follows a failed fsync, the
// request may be there.
//
// The error wraps ErrFull, ErrTooLarge, ErrClosed, the error of the context, or the one of the
// operating system, such as syscall.ENOSPC. After a failed fsync the outbox refuses Puts until it
// has written all records to a new file, which it tries once a second, when a Put comes.
func (o *Outbox) Put(ctx context.Context, req *runlogv1.AppendEventsRequest) (id uint64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(req)
	if err != nil {
		return 0, fmt.Errorf("outbox: encode request: %w", err)
	}
	if len(data) > maxRequestBytes {
		return 0, fmt.Errorf("%w: it has %d bytes, at most %d fit", ErrTooLarge, len(data), maxRequestBytes)
	}
	p := &op{frame: frame{kind: kindPut, data: data}, answered: make(chan error, 1)}
	size := int64(frameBytes(len(data)))
	o.mu.Lock()
	switch live := o.mu.index.bytes + o.mu.queued; {
	case o.mu.closed:
		o.mu.Unlock()
		return 0, ErrClosed
	case live+size > o.opts.MaxBytes:
		o.mu.Unlock()
		return 0, fmt.Errorf("%w: %d of %d bytes are in use; let the records be sent, or raise MaxBytes", ErrFull, live, o.opts.MaxBytes)
	}
	o.mu.queued += size
	p.at = o.opts.now()
	o.mu.queue = append(o.mu.queue, p)
	o.mu.Unlock()
	o.signal()
	select {
	case err := <-p.answered:
		return p.id, err
	case <-ctx.Done():
		if o.withdraw(p, size) {
			return 0, ctx.Err()
		}
		return 0, &UnsettledError{Outcome: p.answered, Cause: ctx.Err()}
	}
}

// UnsettledError means that the context of a Put ended while the disk had the request.
type UnsettledError struct {
	// Outcome gets one value, once the disk has answered. nil: the request is in the outbox.
	Outcome <-chan error
	// Cause is the error of the context.
	Cause error
}

// Error says that the request may be in the outbox.
func (e *UnsettledError) Error() string {
	return "outbox: the disk has not answered, and the request may be in the outbox: " + e.Cause.Error()
}

// Unwrap returns the cause.
func (e *UnsettledError) Unwrap() error { return e.Cause }

// withdraw takes a put out of the queue, and reports false if the writer has already taken it.
func (o *Outbox) withdraw(p *op, size int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := slices.Index(o.mu.queue, p)
	if i < 0 {
		return false
	}
	o.mu.queue = slices.Delete(o.mu.queue, i, i+1)
	o.mu.queued -= size
	return true
}

// signal tells the writer that it has work.
func (o *Outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// Done removes pending records that the server has stored. Other ids are ignored. After a crash, a
// record may be pending again: sending it again is safe (IDM-1).
func (o *Outbox) Done(ids ...uint64) {
	o.mu.Lock()
	p := &op{frame: frame{kind: kindRemove}}
	for _, id := range ids {
		if !o.mu.closed && o.mu.index.remove(id, pending) {
			p.ids = append(p.ids, id)
		}
	}
	o.enqueueLocked(p, len(p.ids) > 0)
	o.mu.Unlock()
}

// Reject marks a pending record that the server has refused for good. It stays in the outbox, as
// one of Rejected, until Discard. Other ids are ignored. After a crash, the record may be pending
// again. Of reason, the first 4 KiB are kept.
func (o *Outbox) Reject(id uint64, reason string) {
	reason = strings.ToValidUTF8(reason[:min(len(reason), maxReasonBytes)], "\uFFFD")
	p := &op{frame: frame{kind: kindReject, id: id, at: o.opts.now(), data: []byte(reason)}}
	o.mu.Lock()
	o.enqueueLocked(p, !o.mu.closed && o.mu.index.reject(id, p.at, reason))
	o.mu.Unlock()
}

// Discard removes rejected records, whose events are then lost, and returns how many there were.
// They are removed once Discard returns.
func (o *Outbox) Discard(ctx context.Context, ids ...uint64) (n int, err error) {
	p := &op{frame: frame{kind: kindRemove}, answered: make(chan error, 1)}
	o.mu.Lock()
	if o.mu.closed {
		o.mu.Unlock()
		return 0, ErrClosed
	}
	for _, id := range ids {
		if o.mu.index.remove(id, rejected) {
			p.ids = append(p.ids, id)
		}
	}
	o.enqueueLocked(p, len(p.ids) > 0)
	o.mu.Unlock()
	if len(p.ids) == 0 {
		return 0, nil
	}
	select {
	case err := <-p.answered:
		return len(p.ids), err
	case <-ctx.Done():
		return len(p.ids), ctx.Err()
	}
}

// enqueueLocked hands an operation to the writer if there is one.
func (o *Outbox) enqueueLocked(p *op, has bool) {
	if has {
		o.mu.queue = append(o.mu.queue, p)
		o.signal()
	}
}
