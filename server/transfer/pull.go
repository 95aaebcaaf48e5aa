package transfer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	nodev1 "runlog/proto/node/v1"
	"runlog/storage"
)

const (
	// retryWait and maxRetryWait bound the pause before a retry. The pause doubles while a retry
	// brings no new bytes.
	retryWait    = 100 * time.Millisecond
	maxRetryWait = 5 * time.Second
	// stallLimit bounds the wait for the next message: a connection to a lost peer reports no
	// error.
	stallLimit = 30 * time.Second
	// openLimit bounds the creation of a checkpoint: the sender flushes first.
	openLimit = 2 * time.Minute
	// closeLimit bounds the last call, which lets the sender drop the checkpoint.
	closeLimit = 2 * time.Second
	// maxManifestBytes is more than a manifest has (storage.Checkpoint.Manifest).
	maxManifestBytes = 32 << 20
)

var (
	errDamaged = errors.New("transfer: message checksum differs")
	errCut     = errors.New("transfer: stream ended before the end of a file")
	// errUseless means that a complete checkpoint did not open as a database.
	errUseless = errors.New("transfer: checkpoint is not usable")
)

// Pull pulls a checkpoint from another node, file by file, until it lies complete in the store's
// directory, ready for install (D5). Pulled files survive Pull: a later call, also by another
// process, resumes.
//
// Pull retries when a stream breaks, a message is damaged, the sender restarts or has no room, or
// the disk fails, and logs why. It ends with the context, or with an error that a retry cannot fix:
// storage.ErrForeign, storage.ErrOlder, or the error of a complete checkpoint with wrong content,
// of which it keeps nothing. Pull calls progress after every message, from the calling goroutine,
// with the received and the total bytes; received decreases if a file has to come again.
func Pull(ctx context.Context, client nodev1.NodeServiceClient, store *storage.Store, progress func(have, total uint64),
	log *slog.Logger) (*storage.Received, error) {
	p := &pull{id: rand.Text(), client: client, store: store, progress: progress, log: log, wait: retryWait, maxWait: maxRetryWait, stall: stallLimit}
	return p.run(ctx)
}

// pull is a call of Pull.
type pull struct {
	client        nodev1.NodeServiceClient
	store         *storage.Store
	progress      func(have, total uint64)
	log           *slog.Logger
	wait, maxWait time.Duration
	stall         time.Duration

	id       string        // under which the sender keeps a checkpoint
	incoming *storage.Seed // nil: ask for the manifest first
}

func (p *pull) run(ctx context.Context) (*storage.Received, error) {
	defer p.leave(ctx)
	begin, wait, most := time.Now(), p.wait, uint64(0)
	for {
		received, err := p.attempt(ctx)
		if err == nil {
			p.log.Info("checkpoint received from another node", "index", received.Applied.Index, "took", time.Since(begin))
			return received, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("transfer: pull checkpoint: %w", context.Cause(ctx))
		}
		if errors.Is(err, storage.ErrForeign) || errors.Is(err, storage.ErrOlder) || errors.Is(err, errUseless) {
			return nil, err
		}
		// Only more bytes than ever before reset the wait: bytes that are received and discarded
		// again do not.
		if have := p.have(); have > most {
			most, wait = have, p.wait
		}
		p.log.Warn("cannot pull checkpoint; retrying", "wait", wait, "have", p.have(), "err", err)
		p.forget(ctx, err)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, p.maxWait)
	}
}

func (p *pull) have() uint64 {
	if p.incoming == nil {
		return 0
	}
	have, _ := p.incoming.Progress()
	return have
}

// attempt pulls the missing files, up to the first error.
func (p *pull) attempt(ctx context.Context) (*storage.Received, error) {
	if p.incoming == nil {
		if err := p.open(ctx); err != nil {
			return nil, err
		}
	}
	for name, offset, ok := p.incoming.Next(); ok; name, offset, ok = p.incoming.Next() {
		if err := p.pullFile(ctx, name, offset); err != nil {
			return nil, fmt.Errorf("pull %s from offset %d: %w", name, offset, err)
		}
	}
	received, err := p.incoming.Finish()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUseless, errors.Join(err, p.incoming.Discard()))
	}
	return received, nil
}

// open asks for the checkpoint, or for a new one if the sender has dropped it, and starts to
// receive it.
func (p *pull) open(ctx context.Context) error {
	opening, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	resp, err := p.client.OpenCheckpoint(opening, &nodev1.OpenCheckpointRequest{CheckpointId: p.id}, grpc.MaxCallRecvMsgSize(maxManifestBytes))
	if err != nil {
		return err
	}
	if p.incoming, err = p.store.Seed(resp.GetOrigin(), resp.GetManifest()); err != nil {
		return err
	}
	have, total := p.incoming.Progress()
	p.log.Info("pulling checkpoint from another node", "index", p.incoming.Applied().Index, "origin", resp.GetOrigin(), "bytes", total, "have", have)
	p.progress(have, total)
	return nil
}

// pullFile pulls a file from an offset to its end.
func (p *pull) pullFile(ctx context.Context, name string, offset uint64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(p.stall, func() { cancel(errCut) })
	defer stall.Stop()
	stream, err := p.client.ReadCheckpoint(ctx, &nodev1.ReadCheckpointRequest{CheckpointId: p.id, File: name, Offset: offset})
	if err != nil {
		return err
	}
	for {
		stall.Reset(p.stall)
		m, err := stream.Recv()
		stall.Stop() // the disk here may take its time
		switch {
		case errors.Is(err, io.EOF):
			return errCut
		case err != nil && errors.Is(context.Cause(ctx), errCut):
			return fmt.Errorf("%w: no message for %s", errCut, p.stall)
		case err != nil:
			return err
		case crc32.Checksum(m.GetData(), castagnoli) != m.GetDataCrc():
			return errDamaged
		}
		if len(m.GetData()) > 0 {
			err = p.incoming.Write(m.GetData())
		}
		if err == nil && m.FileCrc != nil {
			err = p.incoming.EndFile(m.GetFileCrc())
		}
		if err == nil || errors.Is(err, storage.ErrChecksum) {
			p.progress(p.incoming.Progress())
		}
		if err != nil || m.FileCrc != nil {
			return err
		}
	}
}

// forget drops the state that an error has made useless. A broken stream, or a damaged message or
// file, resumes at its offset; after any other error the same request would fail again.
func (p *pull) forget(ctx context.Context, err error) {
	if errors.Is(err, errCut) || errors.Is(err, errDamaged) || errors.Is(err, storage.ErrChecksum) {
		return
	}
	if st, remote := status.FromError(err); remote {
		switch st.Code() {
		case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded, codes.ResourceExhausted:
			return // The connection, or the sender's haste: the checkpoint may still be there.
		}
		if st.Code() != codes.NotFound {
			p.part(ctx) // the sender cannot read it: another checkpoint may work
		}
	}
	p.closeIncoming()
}

func (p *pull) closeIncoming() {
	if p.incoming == nil {
		return
	}
	if err := p.incoming.Close(); err != nil {
		p.log.Warn("cannot close partial checkpoint", "err", err)
	}
	p.incoming = nil
}

// leave keeps the received files, and lets the sender drop the checkpoint at once, so that its log
// need not wait for the idle limit.
func (p *pull) leave(ctx context.Context) {
	p.closeIncoming()
	p.part(context.WithoutCancel(ctx))
}

func (p *pull) part(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, closeLimit)
	defer cancel()
	if _, err := p.client.CloseCheckpoint(ctx, &nodev1.CloseCheckpointRequest{CheckpointId: p.id}); err != nil {
		p.log.Info("cannot release the sender's checkpoint", "err", err)
	}
}
