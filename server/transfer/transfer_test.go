package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"runlog/proto/contract"
	nodev1 "runlog/proto/node/v1"
	"runlog/storage"
	"runlog/storage/storagetest"
	"runlog/testbed/bubble"
)

// TestSeedOverFaults proves D5: a checkpoint is pulled from a node under load, with faults of the
// calls, the sender and the receiver: broken streams, changed bytes, restarts of either side, a
// sender that drops its checkpoint, refusals, lost and damaged answers. The new store is a
// checkpoint of the sender, byte for byte, and the log continues from there.
func TestSeedOverFaults(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { rapid.SyncTest(t, seedOverFaults) })
}

func seedOverFaults(t *rapid.T) {
	kinds := []string{"break", "break", "end", "flip", "lie", "restart", "kill", "forget"}
	b := newBed(t)
	b.serve()
	b.grow(rapid.IntRange(1, 3).Draw(t, "proposals"), rapid.SampledFrom([]int{100, 3_000, 40_000}).Draw(t, "noise"))
	for range rapid.IntRange(0, 15).Draw(t, "faults of streams") {
		b.faults.reads = append(b.faults.reads, readFault{rapid.SampledFrom(kinds).Draw(t, "kind"),
			rapid.OneOf(rapid.IntRange(0, 200), rapid.IntRange(0, 10_000), rapid.IntRange(0, 400_000)).Draw(t, "at")})
	}
	b.faults.opens = rapid.SliceOfN(rapid.SampledFrom([]string{"", "refuse", "lose", "damage"}), 0, 4).Draw(t, "faults of opens")
	stop := func() {}
	if rapid.Bool().Draw(t, "load") {
		stop = b.load()
	}
	received, kills := b.pullThrough(t)
	stop()
	b.installed(received)
	t.Logf("%d faults, %d restarts of the sender, %d of the receiver", b.faults.hits, b.restarts.Load(), kills)
	b.end()
}

// pullThrough pulls until it has all, and starts the receiver again when it is killed.
func (b *bed) pullThrough(t rapid.TB) (_ *storage.Received, kills int) {
	for ; ; kills++ {
		ctx, cancel := context.WithTimeout(context.Background(), bubble.Limit)
		killed := false
		b.faults.Lock()
		b.faults.kill = func() { killed = true; cancel() }
		b.faults.Unlock()
		received, err := b.pull(ctx)
		cancel()
		if err == nil {
			return received, kills
		}
		if !killed || !errors.Is(err, context.Canceled) {
			t.Fatalf("pull: %v", err)
		}
		if err := b.target.Reopen(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSeedGoesOn proves D5: after a broken stream or a damaged message, the pull of the same
// checkpoint resumes at its last byte. After a restart of the receiver, received files are not sent
// again. The sender learns of it at the end.
func TestSeedGoesOn(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		b := startBed(t)
		b.faults.reads = []readFault{{"break", 5_000}, {"flip", 9_000}, {"break", 7_000}, {"end", 11_000}, {"kill", 13_000}}
		var begins []uint64 // bytes that were there when a pull began
		count := func(p *pull) {
			inner, begun := p.progress, false
			p.progress = func(have, total uint64) {
				if !begun {
					begins, begun = append(begins, have), true
				}
				inner(have, total)
			}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		b.faults.kill = func() { cancel(errors.New("enough")) }
		if _, err := b.pull(ctx, count); err == nil || !strings.Contains(err.Error(), "enough") {
			t.Fatalf("pull: %v", err)
		}
		wantEqual(t, "checkpoints that were made", b.made.Load(), 1)
		wantEqual(t, "checkpoints that are out after the receiver has left", b.out.Load(), 0)
		if err := b.target.Reopen(); err != nil {
			t.Fatal(err)
		}
		b.faults.reads = []readFault{{"lie", 100}, {"lie", 90_000}}
		received, err := b.pull(t.Context(), count)
		if err != nil {
			t.Fatal(err)
		}
		wantEqual(t, "bytes that were there in the beginning", begins[0], 0)
		wantEqual(t, "bytes that were kept", begins[1], 5_000+7_000+11_000+13_000)
		b.installed(received)
	})
}

// TestSeedGivesUp proves D1 and D5: a checkpoint of another cluster, an old one, and one with wrong
// content end the pull, and leave nothing.
func TestSeedGivesUp(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		b := startBed(t)
		b.faults.opens = []string{"promise"}
		if received, err := b.pull(t.Context()); !errors.Is(err, errUseless) || !errors.Is(err, storage.ErrCheckpoint) || received != nil {
			t.Errorf("a checkpoint that is not what it promised: %v", err)
		}
		foreign, err := storagetest.Open(storage.Options{FS: vfs.NewMem(), Cluster: storage.ClusterID{9}})
		if err != nil {
			t.Fatal(err)
		}
		log := slog.New(slog.DiscardHandler)
		if _, err := Pull(t.Context(), b.client, foreign.Store, func(uint64, uint64) {}, log); !errors.Is(err, storage.ErrForeign) {
			t.Errorf("of another cluster: %v", err)
		}
		if err := foreign.Close(); err != nil {
			t.Fatal(err)
		}
		overtake := func(p *pull) {
			inner, done := p.progress, false
			p.progress = func(have, total uint64) {
				if inner(have, total); done {
					return
				}
				done = true
				b.target.Entries = b.source.Entries
				err := b.target.Replay(nil)
				if err == nil {
					_, err = b.target.Propose(99, []storagetest.Request{{Append: &storage.Append{RunID: "more", Events: storagetest.Events("more", 0, 1)}}})
				}
				if err != nil {
					t.Errorf("overtake: %v", err)
				}
			}
		}
		if _, err := b.pull(t.Context(), overtake); !errors.Is(err, storage.ErrOlder) {
			t.Errorf("older than the store in the end: %v", err)
		}
		if _, err := Pull(t.Context(), b.client, b.target.Store, func(uint64, uint64) {}, log); !errors.Is(err, storage.ErrOlder) {
			t.Errorf("older than the store: %v", err)
		}
		wantEqual(t, "checkpoints that are out", b.out.Load(), 0)
	})
}

// TestSeedWaits proves D5: a pull waits for a busy sender, for a full disk, and for a silent
// connection.
func TestSeedWaits(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		b := startBed(t)
		for _, id := range []string{"first", "second"} {
			if _, err := b.client.OpenCheckpoint(t.Context(), &nodev1.OpenCheckpointRequest{CheckpointId: id}); err != nil {
				t.Fatal(err)
			}
		}
		b.disk.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1})
		b.faults.reads = []readFault{{"stall", 0}, {"", 0}, {"stall", 1000}}
		ctx := t.Context()
		log := &textLog{}
		type answer struct {
			received *storage.Received
			err      error
		}
		answers := make(chan answer, 1)
		go func() {
			received, err := b.pull(ctx, func(p *pull) { p.log = slog.New(slog.NewTextHandler(log, nil)) })
			answers <- answer{received, err}
		}()
		log.wait(t, "ResourceExhausted", "which is the limit")
		if _, err := b.client.CloseCheckpoint(ctx, &nodev1.CloseCheckpointRequest{CheckpointId: "first"}); err != nil {
			t.Fatal(err)
		}
		log.wait(t, "room")
		b.disk.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1 << 30})
		log.wait(t, "no message for")
		a := <-answers
		if a.err != nil {
			t.Fatal(a.err)
		}
		b.installed(a.received)
	})
}

// textLog keeps the log's text.
type textLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *textLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// wait waits for a line with all of these words.
func (l *textLog) wait(t *testing.T, words ...string) {
	t.Helper()
	bubble.Until(t, fmt.Sprintf("%q was logged", words), func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		for line := range strings.Lines(l.text.String()) {
			if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
				return true
			}
		}
		return false
	})
}

// TestSeedSourceBounds proves D5 and D12: a source serves two checkpoints at a time, while they are
// read, and reports each to the Raft log. Requests for other checkpoints are refused.
func TestSeedSourceBounds(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		b := startBed(t)
		ctx := t.Context()
		open := func(id string) (*nodev1.OpenCheckpointResponse, error) {
			return b.client.OpenCheckpoint(ctx, &nodev1.OpenCheckpointRequest{CheckpointId: id})
		}
		for _, id := range []string{"", strings.Repeat("x", 65)} {
			if _, err := open(id); status.Code(err) != codes.InvalidArgument {
				t.Errorf("id %q: %v", id, err)
			}
		}
		first, err := open("first")
		if err != nil || first.Origin != "a-1/1" {
			t.Fatalf("origin %q, %v", first.GetOrigin(), err)
		}
		b.grow(1, 100)
		again, err := open("first")
		if err != nil || string(again.Manifest) != string(first.Manifest) {
			t.Errorf("the same checkpoint: %v, %v", again, err)
		}
		second, err := open("second")
		if err != nil || string(second.Manifest) == string(first.Manifest) {
			t.Errorf("another checkpoint: %v, %v", second, err)
		}
		wantEqual(t, "checkpoints that are out", b.out.Load(), 2)
		_, err = open("third")
		if status.Code(err) != codes.ResourceExhausted || reasonOf(err) != string(contract.ReasonOverloaded) {
			t.Errorf("a third: %v", err)
		}
		for range 2 {
			if _, err := b.client.CloseCheckpoint(ctx, &nodev1.CloseCheckpointRequest{CheckpointId: "first"}); err != nil {
				t.Error(err)
			}
		}
		wantEqual(t, "checkpoints that are out", b.out.Load(), 1)
		for what, c := range map[string]struct {
			req  *nodev1.ReadCheckpointRequest
			code codes.Code
		}{
			"closed":        {&nodev1.ReadCheckpointRequest{CheckpointId: "first", File: "OPTIONS-000003"}, codes.NotFound},
			"no id":         {&nodev1.ReadCheckpointRequest{File: "OPTIONS-000003"}, codes.NotFound},
			"another file":  {&nodev1.ReadCheckpointRequest{CheckpointId: "second", File: "../CURRENT"}, codes.InvalidArgument},
			"no file":       {&nodev1.ReadCheckpointRequest{CheckpointId: "second"}, codes.InvalidArgument},
			"beyond":        {&nodev1.ReadCheckpointRequest{CheckpointId: "second", File: "OPTIONS-000003", Offset: 1 << 40}, codes.InvalidArgument},
			"what there is": {&nodev1.ReadCheckpointRequest{CheckpointId: "second", File: "OPTIONS-000003"}, codes.OK},
		} {
			stream, err := b.client.ReadCheckpoint(ctx, c.req)
			if err != nil {
				t.Fatal(err)
			}
			for err == nil {
				_, err = stream.Recv()
			}
			if errors.Is(err, io.EOF) {
				err = nil
			}
			if status.Code(err) != c.code {
				t.Errorf("%s: %v, want %s", what, err, c.code)
			}
		}
		// Asked for twice at once: the answer to the first call may be late.
		if _, err := b.client.CloseCheckpoint(ctx, &nodev1.CloseCheckpointRequest{CheckpointId: "second"}); err != nil {
			t.Error(err)
		}
		var asked sync.WaitGroup
		for range 2 {
			asked.Go(func() {
				if _, err := open("third"); err != nil {
					t.Errorf("asked for twice: %v", err)
				}
			})
		}
		asked.Wait()
		wantEqual(t, "checkpoints that are out", b.out.Load(), 1)
		gone, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := b.sender.OpenCheckpoint(gone, &nodev1.OpenCheckpointRequest{CheckpointId: "fourth"}); err == nil {
			t.Error("a receiver that has gone is given a checkpoint")
		}
		wantEqual(t, "checkpoints that are out", b.out.Load(), 1)
		b.stop()
		if _, err := b.sender.OpenCheckpoint(ctx, &nodev1.OpenCheckpointRequest{CheckpointId: "fourth"}); reasonOf(err) != string(contract.ReasonShuttingDown) {
			t.Errorf("after the end: %v", err)
		}
		wantEqual(t, "checkpoints that are out", b.out.Load(), 0)
		b.serve() // for the end of the test
	})
}

func reasonOf(err error) string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.Reason
		}
	}
	return ""
}

// TestSeedSourceIdle proves D5: an unread checkpoint is dropped, also under a stuck reader; one
// that is read stays.
func TestSeedSourceIdle(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.serve()
		b.grow(3, 20_000)
		t.Cleanup(b.end)
		ctx := t.Context()
		if _, err := b.client.OpenCheckpoint(ctx, &nodev1.OpenCheckpointRequest{CheckpointId: "read"}); err != nil {
			t.Fatal(err)
		}
		for begin := time.Now(); time.Since(begin) < 3*b.idle; time.Sleep(b.idle / 2) {
			stream, err := b.client.ReadCheckpoint(ctx, &nodev1.ReadCheckpointRequest{CheckpointId: "read", File: "OPTIONS-000003"})
			for err == nil {
				_, err = stream.Recv()
			}
			if !errors.Is(err, io.EOF) {
				t.Fatalf("a checkpoint that is read: %v", err)
			}
		}
		// The stream is not read, and a table is larger than a window.
		table := b.largest()
		if _, err := b.client.ReadCheckpoint(ctx, &nodev1.ReadCheckpointRequest{CheckpointId: "read", File: table}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * b.idle)
		wantEqual(t, "checkpoints that are out", b.out.Load(), 0)
	})
}

// largest returns the name of the largest file of all checkpoints.
func (b *bed) largest() (largest string) {
	size := 0
	b.copies.Range(func(_, files any) bool {
		for name, data := range files.(map[string][]byte) {
			if len(data) > size {
				largest, size = name, len(data)
			}
		}
		return true
	})
	return largest
}

// BenchmarkSeed pulls 64 MiB over an in-memory connection, between in-memory file systems: the cost
// of the transfer itself.
func BenchmarkSeed(bench *testing.B) {
	b := newBed(bench)
	b.serve()
	for range 32 {
		b.grow(1, 256<<10)
	}
	log := slog.New(slog.DiscardHandler)
	for bench.Loop() {
		received, err := Pull(bench.Context(), b.client, b.target.Store, func(_, total uint64) { bench.SetBytes(int64(total)) }, log)
		if err != nil {
			bench.Fatal(err)
		}
		received.Discard()
	}
	b.end()
}
