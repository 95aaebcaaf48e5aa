package offline_test

import (
	"context"
	"errors"
	"fmt"
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
	"runlog/server"
	"runlog/server/members"
	"runlog/server/rpc"
	"runlog/server/servertest"
	"runlog/storage/backup"
	"runlog/testbed/bubble"
)

// checkpoints are the directories of checkpoints in the node's store.
func checkpoints(n *servertest.Node) []string {
	n.T.Helper()
	list, err := filepath.Glob(filepath.Join(n.Opts.DataDir, "store", "checkpoint-*"))
	if err != nil {
		n.T.Fatal(err)
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
func appending(ns servertest.Nodes) (stop func() []acked) {
	var all []acked
	var mu sync.Mutex
	var ended atomic.Bool
	var done sync.WaitGroup
	for w := range 4 {
		done.Go(func() {
			for i := 0; !ended.Load(); i++ {
				run := fmt.Sprint("load-", w)
				resp := ns[i%len(ns)].MustAppend(run, servertest.Numbered(i))
				at, err := rpc.ParsePosition("position", resp.Position, ns[0].Incarnation())
				if err != nil {
					ns[0].T.Error(err)
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
		all := servertest.StartNodes(t, 3, servertest.EachOnDisk(t))
		repo := servertest.NewRepository(t)
		stop := appending(all)
		var known uint64
		for range 3 {
			for _, n := range append(all.Followers(), all.Leader()) {
				taken := n.BackUp(repo)
				known += taken.KnownFiles
				servertest.WantEqual(t, "checkpoints left", len(checkpoints(n)), 0)
			}
		}
		events := stop()
		if known == 0 {
			t.Error("no file was known")
		}
		all.Close()
		list, err := repo.List()
		if err != nil || len(list) != 9 {
			t.Fatalf("%d backups, %v", len(list), err)
		}
		for _, e := range list[6:] {
			n := servertest.RestoredFrom(t, repo, e.Name, nil)
			n.Start()
			wantAcked(n, events, e.Position)
			n.Close()
		}
	})
}

// wantAcked requires that a restored node has the events acknowledged up to a position, once, with
// a valid chain. It must answer duplicates as before (IDM-6), and store later events as new.
func wantAcked(n *servertest.Node, events []acked, position uint64) {
	n.T.Helper()
	count, later := 0, 0
	lists := map[string][]*runlogv1.EventRecord{}
	for _, e := range events {
		if e.position > position {
			later++
			continue
		}
		count++
		if lists[e.run] == nil {
			lists[e.run] = readAll(n, e.run)
			if err := servertest.AuditRun(lists[e.run]); err != nil {
				n.T.Errorf("%s: %v", e.run, err)
			}
		}
		record := lists[e.run][e.result.RunSeq-1]
		if record.EventId != e.result.EventId || !record.PersistedAt.AsTime().Equal(e.result.PersistedAt.AsTime()) {
			n.T.Errorf("%s: %v, acknowledged was %v", e.run, record, e.result)
		}
		if e.number%7 == 0 {
			got := n.Append(e.run, servertest.Numbered(e.number)).Results[0]
			if !got.Idempotent || got.Persisted || got.EventId != e.result.EventId || got.RunSeq != e.result.RunSeq || !got.PersistedAt.AsTime().Equal(e.result.PersistedAt.AsTime()) {
				n.T.Errorf("%s: duplicate is answered %v, was %v", e.run, got, e.result)
			}
		}
	}
	for run, list := range lists {
		if len(list) == 0 {
			n.T.Errorf("%s is not there", run)
		}
	}
	n.T.Logf("%d events up to %d, %d later", count, position, later)
	if count == 0 {
		n.T.Error("nothing was backed up")
	}
}

// readAll reads all records of a run.
func readAll(n *servertest.Node, runID string) (all []*runlogv1.EventRecord) {
	n.T.Helper()
	for after := uint64(0); ; {
		resp, err := n.Events.ListEvents(n.Context(), &runlogv1.ListEventsRequest{RunId: runID, AfterSeq: after})
		if err != nil {
			n.T.Fatal(err)
		}
		all = append(all, resp.Events...)
		if after = resp.NextAfterSeq; after == 0 {
			return all
		}
	}
}

// unread starts a backup and reads its first message only.
func unread(ctx context.Context, n *servertest.Node) grpc.ServerStreamingClient[runlogv1.BackupResponse] {
	n.T.Helper()
	stream, err := runlogv1.NewClusterServiceClient(n.Conn).Backup(ctx, &runlogv1.BackupRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		n.T.Fatal(err)
	}
	return stream
}

// startLargeNode starts a node whose store exceeds the buffers between server and client.
func startLargeNode(t testing.TB, change ...func(*server.Options)) *servertest.Node {
	n := servertest.Start(t, append([]func(*server.Options){servertest.OnDisk(t)}, change...)...)
	n.DialWith()
	for i := range 12 {
		var events []*runlogv1.EventWrite
		for j := range 20 {
			events = append(events, servertest.NewEvent("Noted", servertest.Step(fmt.Sprint(i, "-", j)), servertest.Payload(`{"noise":"`+noise(i*100+j, 60_000)+`"}`)))
		}
		n.Append("run", events...)
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
		n := startLargeNode(t, func(o *server.Options) { o.SlowConsumer = time.Hour })
		ctx, cancel := context.WithCancel(t.Context())
		unread(ctx, n)
		unread(ctx, n)
		servertest.WantEqual(t, "checkpoints", len(checkpoints(n)), members.MaxBackups)
		_, err := servertest.NewRepository(t).Take(n.Source(), backup.TakeOptions{})
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Reason != contract.ReasonOverloaded || e.RetryAfter == 0 {
			t.Errorf("a third: %v", err)
		}
		cancel()
		bubble.Until(t, "backups without a reader end", func() bool { return len(checkpoints(n)) == 0 })
		n.BackUp(servertest.NewRepository(t))
		// A node that stops does not wait for it.
		unread(t.Context(), n)
		servertest.Within(t, "the node stops", func() bool { n.Close(); return true })
		servertest.WantEqual(t, "checkpoints", len(checkpoints(n)), 0)
	})
}

// TestBackupSlowReader: a reader that takes nothing for too long gets an error.
func TestBackupSlowReader(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := startLargeNode(t, func(o *server.Options) { o.SlowConsumer = 200 * time.Millisecond })
		stream := unread(t.Context(), n)
		bubble.Until(t, "the backup ends", func() bool { return len(checkpoints(n)) == 0 })
		servertest.WantEqual(t, "checkpoints", len(checkpoints(n)), 0)
		var err error
		for err == nil {
			_, err = stream.Recv()
		}
		servertest.Refused(t, err, contract.ReasonSlowConsumer)
	})
}

// TestBackupKnown: a file that the caller has is not sent, a file that differs is reported, and an
// impossible list is refused.
func TestBackupKnown(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, servertest.OnDisk(t))
		n.HaveKey()
		n.Append("run", servertest.Numbered(1))
		repo := servertest.NewRepository(t)
		first := n.BackUp(repo)
		// once the store has put its first tables together
		bubble.Until(t, "a file is known", func() bool {
			first = n.BackUp(repo)
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
			for _, err = range n.Source()(req) {
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
		n := servertest.Start(t, servertest.OnDisk(t))
		n.HaveKey()
		for i := range 3 {
			n.Append(fmt.Sprint("run-", i), servertest.Numbered(1), servertest.Numbered(2))
		}
		last := n.List("run-2")[1].PersistedAt.AsTime()
		b := n.BackUp(servertest.NewRepository(t))
		if b.Events != 6 || b.Runs != 3 || b.Node != n.Server.NodeID() || proof.FormatTime(b.CompleteThrough) != proof.FormatTime(last.UnixNano()) ||
			b.Position != n.Server.Internals().Replica.Store().Applied().Index || b.Cluster != n.Server.Internals().Replica.ClusterID() || b.Version != "dev" {
			t.Errorf("%+v", b.Backup)
		}
		if names, err := os.ReadDir(filepath.Join(n.Opts.DataDir, "store")); err != nil || len(names) != 2 {
			t.Errorf("the store has %v, %v", names, err)
		}
	})
}
