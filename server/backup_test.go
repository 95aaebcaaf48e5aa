package server

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"runlog/audit/proof"
	"runlog/client"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/members"
	"runlog/server/rpc"
	"runlog/storage/backup"
	"runlog/testbed/bubble"
)

// source is a client's way to a node's backups.
func (n *node) source() backup.Source {
	n.t.Helper()
	c, err := client.Dial(n.server.Addresses().GRPC, client.Options{MaxAttempts: 1, Timeout: patience, DialOptions: []grpc.DialOption{n.dialer()}})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = c.Close() })
	return func(req *runlogv1.BackupRequest) iter.Seq2[*runlogv1.BackupResponse, error] {
		return c.Backup(n.context(), req)
	}
}

// backUp takes a backup of the node.
func (n *node) backUp(repo *backup.Repository) *backup.Taken {
	n.t.Helper()
	taken, err := repo.Take(n.source(), backup.TakeOptions{})
	if err != nil {
		n.t.Fatalf("back up %s: %v", n.opts.NodeID, err)
	}
	return taken
}

func newRepository(t testing.TB) *backup.Repository {
	return backup.Open(nil, filepath.Join(t.TempDir(), "backups"))
}

// checkpoints are the directories of checkpoints in the node's store.
func (n *node) checkpoints() []string {
	n.t.Helper()
	list, err := filepath.Glob(filepath.Join(n.opts.DataDir, "store", "checkpoint-*"))
	if err != nil {
		n.t.Fatal(err)
	}
	return list
}

// acked is the acknowledged answer for an event.
type acked struct {
	run      string
	number   int
	result   *runlogv1.AppendResult
	position uint64
}

// appending appends to all nodes until it is stopped, and returns the acknowledged events.
func (ns nodes) appending() (stop func() []acked) {
	var all []acked
	var mu sync.Mutex
	var ended atomic.Bool
	var done sync.WaitGroup
	for w := range 4 {
		done.Go(func() {
			for i := 0; !ended.Load(); i++ {
				run := fmt.Sprint("load-", w)
				resp := ns[i%len(ns)].mustAppend(run, numbered(i))
				at, err := rpc.ParsePosition("position", resp.Position)
				if err != nil {
					ns[0].t.Error(err)
				}
				mu.Lock()
				all = append(all, acked{run, i, resp.Results[0], uint64(at)})
				mu.Unlock()
			}
		})
	}
	return func() []acked {
		ended.Store(true)
		done.Wait()
		return all
	}
}

// TestBackupUnderLoad makes backups of every node, one after the other, during appends. Each
// contains every event acknowledged before its position, exactly once. The next backup of a node
// transfers only a part.
func TestBackupUnderLoadIDM6(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		all := startNodes(t, 3, eachOnDisk(t))
		repo := newRepository(t)
		stop := all.appending()
		var known uint64
		for range 3 {
			for _, n := range append(all.followers(), all.leader()) {
				taken := n.backUp(repo)
				known += taken.KnownFiles
				wantEqual(t, "checkpoints left", len(n.checkpoints()), 0)
			}
		}
		events := stop()
		if known == 0 {
			t.Error("no file was known")
		}
		all.close()
		list, err := repo.List()
		if err != nil || len(list) != 9 {
			t.Fatalf("%d backups, %v", len(list), err)
		}
		for _, e := range list[6:] {
			n := restoredFrom(t, repo, e.Name, nil)
			n.start()
			n.wantAcked(events, e.Position)
			n.close()
		}
	})
}

// wantAcked requires that a restored node has the events acknowledged up to a position, once, with
// a valid chain. It must answer duplicates as before (IDM-6), and store later events as new.
func (n *node) wantAcked(events []acked, position uint64) {
	n.t.Helper()
	count, later := 0, 0
	lists := map[string][]*runlogv1.EventRecord{}
	for _, e := range events {
		if e.position > position {
			later++
			continue
		}
		count++
		if lists[e.run] == nil {
			lists[e.run] = n.readAll(e.run)
			if err := auditRun(lists[e.run]); err != nil {
				n.t.Errorf("%s: %v", e.run, err)
			}
		}
		record := lists[e.run][e.result.RunSeq-1]
		if record.EventId != e.result.EventId || !record.PersistedAt.AsTime().Equal(e.result.PersistedAt.AsTime()) {
			n.t.Errorf("%s: %v, acknowledged was %v", e.run, record, e.result)
		}
		if e.number%7 == 0 {
			got := n.append(e.run, numbered(e.number)).Results[0]
			if !got.Idempotent || got.Persisted || got.EventId != e.result.EventId || got.RunSeq != e.result.RunSeq || !got.PersistedAt.AsTime().Equal(e.result.PersistedAt.AsTime()) {
				n.t.Errorf("%s: duplicate is answered %v, was %v", e.run, got, e.result)
			}
		}
	}
	for run, list := range lists {
		if len(list) == 0 {
			n.t.Errorf("%s is not there", run)
		}
	}
	n.t.Logf("%d events up to %d, %d later", count, position, later)
	if count == 0 {
		n.t.Error("nothing was backed up")
	}
}

// readAll reads all records of a run.
func (n *node) readAll(runID string) (all []*runlogv1.EventRecord) {
	n.t.Helper()
	for after := uint64(0); ; {
		resp, err := n.events.ListEvents(n.context(), &runlogv1.ListEventsRequest{RunId: runID, AfterSeq: after})
		if err != nil {
			n.t.Fatal(err)
		}
		all = append(all, resp.Events...)
		if after = resp.NextAfterSeq; after == 0 {
			return all
		}
	}
}

// unread starts a backup and reads its first message only.
func (n *node) unread(ctx context.Context) grpc.ServerStreamingClient[runlogv1.BackupResponse] {
	n.t.Helper()
	stream, err := runlogv1.NewClusterServiceClient(n.conn).Backup(ctx, &runlogv1.BackupRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		n.t.Fatal(err)
	}
	return stream
}

// startLargeNode starts a node whose store exceeds the buffers between server and client.
func startLargeNode(t testing.TB, change ...func(*Options)) *node {
	n := startNode(t, append([]func(*Options){onDisk(t)}, change...)...)
	n.dialWith()
	for i := range 12 {
		var events []*runlogv1.EventWrite
		for j := range 20 {
			events = append(events, newEvent("Noted", step(fmt.Sprint(i, "-", j)), payload(`{"noise":"`+noise(i*100+j, 60_000)+`"}`)))
		}
		n.append("run", events...)
	}
	return n
}

// noise does not compress.
func noise(seed, size int) string {
	var b strings.Builder
	for x := uint64(seed)*2654435761 + 1; b.Len() < size; {
		x = x*6364136223846793005 + 1442695040888963407
		fmt.Fprintf(&b, "%016x", x)
	}
	return b.String()[:size]
}

// TestBackupBounds proves D12: the number of backups is limited. A backup without a reader, or
// whose reader disconnects, ends and leaves no files.
func TestBackupBounds(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startLargeNode(t, func(o *Options) { o.SlowConsumer = time.Hour })
		ctx, cancel := context.WithCancel(t.Context())
		n.unread(ctx)
		n.unread(ctx)
		wantEqual(t, "checkpoints", len(n.checkpoints()), members.MaxBackups)
		_, err := newRepository(t).Take(n.source(), backup.TakeOptions{})
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Reason != contract.ReasonOverloaded || e.RetryAfter == 0 {
			t.Errorf("a third: %v", err)
		}
		cancel()
		bubble.Until(t, "backups without a reader end", func() bool { return len(n.checkpoints()) == 0 })
		n.backUp(newRepository(t))
		// A node that stops does not wait for it.
		n.unread(t.Context())
		within(t, "the node stops", func() bool { n.close(); return true })
		wantEqual(t, "checkpoints", len(n.checkpoints()), 0)
	})
}

// TestBackupSlowReader: a reader that takes nothing for too long gets an error.
func TestBackupSlowReader(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startLargeNode(t, func(o *Options) { o.SlowConsumer = 200 * time.Millisecond })
		stream := n.unread(t.Context())
		bubble.Until(t, "the backup ends", func() bool { return len(n.checkpoints()) == 0 })
		wantEqual(t, "checkpoints", len(n.checkpoints()), 0)
		var err error
		for err == nil {
			_, err = stream.Recv()
		}
		refused(t, err, contract.ReasonSlowConsumer)
	})
}

// TestBackupKnown: a file that the caller has is not sent, a file that differs is reported, and an
// impossible list is refused.
func TestBackupKnown(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t, onDisk(t))
		n.haveKey()
		n.append("run", numbered(1))
		repo := newRepository(t)
		first := n.backUp(repo)
		// once the store has put its first tables together
		bubble.Until(t, "a file is known", func() bool {
			first = n.backUp(repo)
			return first.KnownFiles > 0
		})
		var table *runlogv1.BackupFile
		for _, f := range first.Files {
			if strings.HasSuffix(f.Name, ".sst") {
				table = &runlogv1.BackupFile{Name: f.Name, Size: f.Size, Sha256: append([]byte(nil), f.SHA256[:]...)}
			}
		}
		table.Sha256[3] ^= 1
		ask := func(req *runlogv1.BackupRequest) (err error) {
			for _, err = range n.source()(req) {
				if err != nil {
					break
				}
			}
			return err
		}
		err := ask(&runlogv1.BackupRequest{Known: []*runlogv1.BackupKnown{{Origin: first.Origin, Files: []*runlogv1.BackupFile{table}}}})
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Reason != contract.ReasonFileChanged || e.Code != codes.DataLoss || !strings.Contains(e.Message, table.Name) {
			t.Errorf("a file that is another now: %v", err)
		}
		// Of another origin, or of another size, it is another file.
		if err := ask(&runlogv1.BackupRequest{Known: []*runlogv1.BackupKnown{{Origin: first.Origin + "1", Files: []*runlogv1.BackupFile{table}}}}); err != nil {
			t.Error(err)
		}
		// A file that is not a table may change under its name.
		for _, f := range first.Files {
			if strings.HasPrefix(f.Name, "OPTIONS") {
				options := &runlogv1.BackupFile{Name: f.Name, Size: f.Size, Sha256: make([]byte, 32)}
				if err := ask(&runlogv1.BackupRequest{Known: []*runlogv1.BackupKnown{{Origin: first.Origin, Files: []*runlogv1.BackupFile{options}}}}); err != nil {
					t.Error(err)
				}
			}
		}
		table.Size++
		if err := ask(&runlogv1.BackupRequest{Known: []*runlogv1.BackupKnown{{Origin: first.Origin, Files: []*runlogv1.BackupFile{table}}}}); err != nil {
			t.Error(err)
		}
		table.Sha256 = table.Sha256[1:]
		if err := ask(&runlogv1.BackupRequest{Known: []*runlogv1.BackupKnown{{Files: []*runlogv1.BackupFile{table}}}}); status.Code(errors.Unwrap(err)) != codes.InvalidArgument && !strings.Contains(fmt.Sprint(err), "INVALID_ARGUMENT_FIELD") {
			t.Errorf("a short digest: %v", err)
		}
	})
}

// TestBackupStatement: the statements of the manifest are true.
func TestBackupStatement(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startNode(t, onDisk(t))
		n.haveKey()
		for i := range 3 {
			n.append(fmt.Sprint("run-", i), numbered(1), numbered(2))
		}
		last := n.list("run-2")[1].PersistedAt.AsTime()
		b := n.backUp(newRepository(t))
		if b.Events != 6 || b.Runs != 3 || b.Node != n.server.NodeID() || proof.FormatTime(b.CompleteThrough) != proof.FormatTime(last.UnixNano()) ||
			b.Position != n.server.replica.Store().Applied().Index || b.Cluster != n.server.replica.ClusterID() || b.Version != "dev" {
			t.Errorf("%+v", b.Backup)
		}
		if names, err := os.ReadDir(filepath.Join(n.opts.DataDir, "store")); err != nil || len(names) != 2 {
			t.Errorf("the store has %v, %v", names, err)
		}
	})
}
