package members

import (
	"context"
	"fmt"
	"time"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// sendQueue sends the messages of a backup on a goroutine of its own, a few behind the maker. If
// the reader takes nothing for Options.SlowConsumer, the backup fails; the end of the call releases
// a goroutine that hangs in Send.
//
//	piece ──► putPiece ──► queue ──► send ──┐
//	  ▲                                     │
//	  └────────────── free ◄────────────────┘
type sendQueue struct {
	s     *Service
	ctx   context.Context
	queue chan *runlogv1.BackupResponse
	// free holds unused pieces. Invariant: of backupPieces+2 pieces, each is in free, in queue, in
	// Send, or with the maker.
	free chan []byte
	done chan struct{} // closed when sending has ended, with err
	err  error
}

func newSendQueue(ctx context.Context, s *Service, send func(*runlogv1.BackupResponse) error) *sendQueue {
	o := &sendQueue{s: s, ctx: ctx, queue: make(chan *runlogv1.BackupResponse, backupPieces), free: make(chan []byte, backupPieces+2), done: make(chan struct{})}
	s.sends.Go(func() {
		defer close(o.done)
		for m := range o.queue {
			if o.err = send(m); o.err != nil {
				return
			}
			if data := m.GetData(); data != nil {
				s.sent.Add(float64(len(data)))
				o.reuse(data)
			}
		}
	})
	return o
}

// piece returns memory for a piece of a file.
func (o *sendQueue) piece() []byte {
	select {
	case p := <-o.free:
		return p
	default:
		return make([]byte, backupPiece)
	}
}

// reuse returns a piece to free. Invariant: free has room for all pieces, so reuse never blocks.
func (o *sendQueue) reuse(p []byte) {
	select {
	case o.free <- p[:backupPiece]:
	default:
	}
}

// putPiece queues a piece, which returns to free once it is sent.
func (o *sendQueue) putPiece(p []byte) error {
	return o.put(&runlogv1.BackupResponse{Part: &runlogv1.BackupResponse_Data{Data: p}})
}

// put queues a message, or returns why no more are sent.
func (o *sendQueue) put(m *runlogv1.BackupResponse) error {
	select {
	case o.queue <- m: // the usual case needs no timer
		return nil
	default:
	}
	patience := time.NewTimer(o.s.opts.SlowConsumer)
	defer patience.Stop()
	select {
	case o.queue <- m:
		return nil
	case <-o.done:
		return o.err
	case <-o.ctx.Done():
		return context.Cause(o.ctx)
	case <-patience.C:
		return o.slow()
	}
}

// alive reports whether the reader still reads.
func (o *sendQueue) alive() error {
	select {
	case <-o.done:
		return o.err
	default:
		return context.Cause(o.ctx)
	}
}

func (o *sendQueue) slow() error {
	return &contract.Error{Reason: contract.ReasonSlowConsumer,
		Message: fmt.Sprintf("a message of the backup waited for its reader for %v; make the backup again; complete files are not sent again", o.s.opts.SlowConsumer)}
}

// end waits until all is sent, unless the backup has failed. The goroutine that calls put calls it
// once.
func (o *sendQueue) end(failed error) error {
	close(o.queue)
	if failed != nil {
		return nil
	}
	patience := time.NewTimer(o.s.opts.SlowConsumer * backupPieces)
	defer patience.Stop()
	select {
	case <-o.done:
		return o.err
	case <-o.ctx.Done():
		return context.Cause(o.ctx)
	case <-patience.C:
		return o.slow()
	}
}
