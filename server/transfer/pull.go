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
	// seedWait and maxSeedWait bound the pause before a further attempt; it doubles while nothing
	// new comes.
	seedWait    = 100 * time.Millisecond
	maxSeedWait = 5 * time.Second
	// seedStall is how long the next message may take: a connection whose other end is gone says
	// nothing.
	seedStall = 30 * time.Second
	// seedOpening is how long a checkpoint may take to be made: the sender flushes first.
	seedOpening = 2 * time.Minute
	// seedParting is how long the sender is waited for when it is told that a checkpoint may go.
	seedParting = 2 * time.Second
	// maxManifestBytes is more than a manifest has (storage.Checkpoint.Manifest).
	maxManifestBytes = 32 << 20
)

var (
	errSeedDamaged = errors.New("seed: a message came with another checksum")
	errSeedCut     = errors.New("seed: the stream of a file ended early")
	// errSeedUseless means that a checkpoint came whole and did not become a database.
	errSeedUseless = errors.New("seed: the checkpoint cannot be used")
)

// Pull pulls a checkpoint from another node, file by file, until it lies whole in the store's
// directory, ready to be installed (D5). What it has pulled survives it: called again, also by
// another process, it goes on.
//
// It goes on by itself when a stream breaks, a message is damaged, the sender restarts or has no
// room, or the disk fails, and logs why; so it ends only with the context, or with an error that
// waiting does not mend: storage.ErrForeign, storage.ErrOlder, or one of the checkpoint that came
// whole and holds something else than it promised, after which nothing of it is kept. progress is
// told the bytes that are there and that there will be, after every message, by the calling
// goroutine; it goes back where a file has to come again.
func Pull(ctx context.Context, client nodev1.NodeServiceClient, store *storage.Store, progress func(have, total uint64),
	log *slog.Logger) (*storage.Received, error) {
	p := &pull{id: rand.Text(), client: client, store: store, progress: progress, log: log, wait: seedWait, maxWait: maxSeedWait, stall: seedStall}
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

	id   string        // under which the sender keeps a checkpoint
	seed *storage.Seed // nil: the manifest is to be asked for
}

func (p *pull) run(ctx context.Context) (*storage.Received, error) {
	defer p.leave(ctx)
	begin, wait, most := time.Now(), p.wait, uint64(0)
	for {
		received, err := p.attempt(ctx)
		if err == nil {
			p.log.Info("a checkpoint has come from another node", "index", received.Applied.Index, "took", time.Since(begin))
			return received, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("seed: pull a checkpoint: %w", context.Cause(ctx))
		}
		if errors.Is(err, storage.ErrForeign) || errors.Is(err, storage.ErrOlder) || errors.Is(err, errSeedUseless) {
			return nil, err
		}
		// More than ever before: bytes that come and are thrown away again are no reason to hurry.
		if have := p.have(); have > most {
			most, wait = have, p.wait
		}
		p.log.Warn("pulling a checkpoint goes on after a pause", "wait", wait, "have", p.have(), "err", err)
		p.forget(ctx, err)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, p.maxWait)
	}
}

func (p *pull) have() uint64 {
	if p.seed == nil {
		return 0
	}
	have, _ := p.seed.Progress()
	return have
}

// attempt pulls what is missing, up to the first error.
func (p *pull) attempt(ctx context.Context) (*storage.Received, error) {
	if p.seed == nil {
		if err := p.open(ctx); err != nil {
			return nil, err
		}
	}
	for name, offset, ok := p.seed.Next(); ok; name, offset, ok = p.seed.Next() {
		if err := p.pullFile(ctx, name, offset); err != nil {
			return nil, fmt.Errorf("pull %s from %d on: %w", name, offset, err)
		}
	}
	received, err := p.seed.Finish()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSeedUseless, errors.Join(err, p.seed.Discard()))
	}
	return received, nil
}

// open asks for the checkpoint, for another if the sender does not have it any more, and begins to
// take it in.
func (p *pull) open(ctx context.Context) error {
	opening, cancel := context.WithTimeout(ctx, seedOpening)
	defer cancel()
	resp, err := p.client.OpenCheckpoint(opening, &nodev1.OpenCheckpointRequest{CheckpointId: p.id}, grpc.MaxCallRecvMsgSize(maxManifestBytes))
	if err != nil {
		return err
	}
	if p.seed, err = p.store.Seed(resp.GetOrigin(), resp.GetManifest()); err != nil {
		return err
	}
	have, total := p.seed.Progress()
	p.log.Info("pulling a checkpoint from another node", "index", p.seed.Applied().Index, "origin", resp.GetOrigin(), "bytes", total, "have", have)
	p.progress(have, total)
	return nil
}

// pullFile pulls a file from an offset to its end.
func (p *pull) pullFile(ctx context.Context, name string, offset uint64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(p.stall, func() { cancel(errSeedCut) })
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
			return errSeedCut
		case err != nil && errors.Is(context.Cause(ctx), errSeedCut):
			return fmt.Errorf("%w: nothing came for %s", errSeedCut, p.stall)
		case err != nil:
			return err
		case crc32.Checksum(m.GetData(), castagnoli) != m.GetDataCrc():
			return errSeedDamaged
		}
		if len(m.GetData()) > 0 {
			err = p.seed.Write(m.GetData())
		}
		if err == nil && m.FileCrc != nil {
			err = p.seed.EndFile(m.GetFileCrc())
		}
		if err == nil || errors.Is(err, storage.ErrChecksum) {
			p.progress(p.seed.Progress())
		}
		if err != nil || m.FileCrc != nil {
			return err
		}
	}
}

// forget lets go of what an error has made useless. A stream that broke, or a message or file that
// came damaged, is gone on with where it was; nothing else is worth a second try as it is.
func (p *pull) forget(ctx context.Context, err error) {
	if errors.Is(err, errSeedCut) || errors.Is(err, errSeedDamaged) || errors.Is(err, storage.ErrChecksum) {
		return
	}
	if st, remote := status.FromError(err); remote {
		switch st.Code() {
		case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded, codes.ResourceExhausted:
			return // The connection, or the sender's haste: the checkpoint may still be there.
		}
		if st.Code() != codes.NotFound {
			p.part(ctx) // The sender cannot read it: another may do.
		}
	}
	p.closeSeed()
}

func (p *pull) closeSeed() {
	if p.seed == nil {
		return
	}
	if err := p.seed.Close(); err != nil {
		p.log.Warn("what has come of a checkpoint was not closed", "err", err)
	}
	p.seed = nil
}

// leave keeps what has come, and tells the sender that the checkpoint may go, so that its log need
// not wait until it has noticed.
func (p *pull) leave(ctx context.Context) {
	p.closeSeed()
	p.part(context.WithoutCancel(ctx))
}

func (p *pull) part(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, seedParting)
	defer cancel()
	if _, err := p.client.CloseCheckpoint(ctx, &nodev1.CloseCheckpointRequest{CheckpointId: p.id}); err != nil {
		p.log.Info("the sender was not told that its checkpoint may go", "err", err)
	}
}
