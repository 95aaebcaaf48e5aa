package offline_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"runlog/audit/proof"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/offline"
	"runlog/server/servertest"
	"runlog/storage"
	"runlog/storage/backup"
	"runlog/testbed/bubble"
)

// TestRestore: a restored node continues as the first member of a new cluster, even if its clock is
// behind (APP-5), and other nodes join it. A window that is closed in the backup is byte for byte
// the same. Nodes of the old cluster and of the new one refuse each other.
func TestRestoreAPP5READ4(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		old := servertest.StartNodes(t, 3, servertest.EachOnDisk(t))
		for i := range 10 {
			old[i%3].MustAppend("run", servertest.Numbered(i))
		}
		old.WantSame("run", 10) // a follower may be behind for a moment
		repo := servertest.NewRepository(t)
		old.Followers()[0].BackUp(repo)
		records := old[0].List("run")
		last := records[9].PersistedAt.AsTime()
		window := &runlogv1.ExportEventsRequest{From: records[2].PersistedAt, To: records[9].PersistedAt}
		before := old[0].Export(window)
		n := servertest.RestoredFrom(t, repo, "", func(o *server.Options) {
			o.NodeID = "first"
			o.Clock = func() time.Time { return time.Now().Add(-time.Hour) }
		})
		n.Start()
		me := n.Server.Internals().Cluster.Identity()
		if me.ClusterID == old[0].Server.Internals().Cluster.Identity().ClusterID || len(me.ClusterID) != 32 || me.NodeID != "first" {
			t.Errorf("identity %+v", me)
		}
		now := n.Append("run", servertest.Numbered(10))
		if now.LastSeq != 11 || !now.Results[0].PersistedAt.AsTime().After(last) {
			t.Errorf("the next event is %v, the last one before %v", now, last)
		}
		n.Restart()
		servertest.WantEqual(t, "last", n.Append("run", servertest.Numbered(11)).LastSeq, 12)

		young := servertest.Nodes{n}
		for _, name := range []string{"second", "third"} {
			m := &servertest.Node{T: t, Opts: servertest.DiskOptions(t)}
			m.Opts.NodeID, m.Opts.Join = name, []string{n.Server.Addresses().Raft}
			m.Opts.JoinToken = n.JoinToken()
			m.Start()
			t.Cleanup(m.Close)
			young = append(young, m)
		}
		young.WantSame("run", 12)
		for _, m := range young[1:] { // to the clock of the first one it lies ahead
			after := m.Export(window)
			// The position is the same in another incarnation (READ-7).
			after.Summary.ClusterId, after.Summary.Position = before.Summary.ClusterId, before.Summary.Position
			if len(after.Events) != 7 || !after.Summary.Closed || !bytes.Equal(after.Bytes(t), before.Bytes(t)) {
				t.Errorf("the window at %s: %v, was %v", m.Opts.NodeID, after.Summary, before.Summary)
			}
		}
		bubble.Until(t, "all vote", func() bool {
			voters := 0
			for _, m := range n.Server.Internals().Replica.Node().Members() {
				if m.Voter {
					voters++
				}
			}
			return voters == 3
		})
		bubble.Until(t, "the first one is known where it is", func() bool {
			self, _ := n.Server.Internals().Replica.Node().Self()
			return self.Address == n.Server.Addresses().Raft
		})
		servertest.WantEqual(t, "last", young[2].MustAppend("run", servertest.Numbered(12)).LastSeq, 13)
		for _, m := range young {
			if err := servertest.AuditRun(m.Local("run", 13)); err != nil {
				t.Error(err)
			}
		}
		servertest.WantEqual(t, "events of the old cluster", len(old[1].List("run")), 10)

		// A new node is refused by the old cluster once it belongs to the new one, and a node of
		// the old one by the new.
		for what, c := range map[string]struct{ stranger, host *servertest.Node }{"new": {young[2], old[0]}, "old": {old[2], n}} {
			c.stranger.Close()
			c.stranger.Opts.Registry, c.stranger.Opts.Join, c.stranger.Opts.BootstrapExpect = nil, []string{c.host.Server.Addresses().Raft}, 0
			c.stranger.Opts.Fail = func(error) {}
			cluster := strings.Clone(c.host.Server.Internals().Cluster.Identity().ClusterID)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			s, err := server.Start(ctx, c.stranger.Opts)
			cancel()
			if err == nil {
				if s.Internals().Cluster.Identity().ClusterID == cluster {
					t.Errorf("the %s node has changed its cluster", what)
				}
				_ = s.Close()
			}
			for _, m := range c.host.Server.Internals().Replica.Node().Members() {
				if strings.HasPrefix(m.ID, c.stranger.Opts.NodeID+".") {
					t.Errorf("the %s node has become a member of the other cluster", what)
				}
			}
		}
	})
}

// TestRestoreRefuses: each refusal has its reason and leaves no files.
func TestRestoreRefuses(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, servertest.OnDisk(t))
		n.Append("run", servertest.Numbered(1))
		key, err := proof.NewSigner(n.Server.Internals().Replica.ClusterID(), [32]byte{1})
		if err != nil {
			t.Fatal(err)
		}
		other, err := proof.NewSigner(n.Server.Internals().Replica.ClusterID(), [32]byte{2})
		if err != nil {
			t.Fatal(err)
		}
		root := t.TempDir()
		unsigned, signed := backup.Open(nil, filepath.Join(root, "unsigned")), backup.Open(nil, filepath.Join(root, "signed"))
		if _, err := unsigned.Take(withoutSignatures(t, n.Source()), backup.TakeOptions{}); err != nil {
			t.Fatal(err)
		}
		changed := func(change func(*proof.Backup)) backup.Source {
			from := n.Source()
			return func(req *runlogv1.BackupRequest) iter.Seq2[*runlogv1.BackupResponse, error] {
				return func(yield func(*runlogv1.BackupResponse, error) bool) {
					for m, err := range from(req) {
						if note := m.GetManifest(); note != "" {
							st, _, err := proof.Peek(note)
							if err != nil {
								t.Error(err)
							}
							b, err := proof.ParseBackup(st)
							if err != nil {
								t.Error(err)
							}
							change(b)
							if note, err = key.Sign(b.Statement()); err != nil {
								t.Error(err)
							}
							m.Part = &runlogv1.BackupResponse_Manifest{Manifest: note}
						}
						if !yield(m, err) {
							return
						}
					}
				}
			}
		}
		take := func(repo *backup.Repository, change func(*proof.Backup)) string {
			taken, err := repo.Take(changed(change), backup.TakeOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return taken.Name
		}
		good := take(signed, func(*proof.Backup) {})
		target := filepath.Join(root, "deep", "target")
		try := func(repo *backup.Repository, name string, change ...func(*offline.RestoreOptions)) (*offline.Restored, error) {
			o := offline.RestoreOptions{Options: servertest.OfflineOptions(servertest.DiskOptions(t)), Repository: repo, Backup: name}
			o.DataDir = target
			for _, c := range change {
				c(&o)
			}
			return offline.Restore(t.Context(), o)
		}
		keyed := func(key string) func(*offline.RestoreOptions) {
			return func(o *offline.RestoreOptions) { o.PublicKeys = []string{key} }
		}
		for what, c := range map[string]struct {
			err  error
			says string
			f    func() (*offline.Restored, error)
		}{
			"unsigned":    {proof.ErrUnsigned, "not signed", func() (*offline.Restored, error) { return try(unsigned, "", keyed(key.PublicKey())) }},
			"another key": {proof.ErrUnknownKey, "but by", func() (*offline.Restored, error) { return try(signed, good, keyed(other.PublicKey())) }},
			"no backup":   {backup.ErrNone, "nothing", func() (*offline.Restored, error) { return try(signed, "nothing") }},
			"format": {offline.ErrBackupFormat, "the build that made it, dev", func() (*offline.Restored, error) {
				return try(signed, take(signed, func(b *proof.Backup) { b.Format++ }))
			}},
			"term": {storage.ErrPromise, "of term", func() (*offline.Restored, error) {
				return try(signed, take(signed, func(b *proof.Backup) { b.Term++ }))
			}},
			"rolling hash": {storage.ErrPromise, "rolling hash", func() (*offline.Restored, error) {
				return try(signed, take(signed, func(b *proof.Backup) { b.RollingHash[0]++ }))
			}},
			"events": {storage.ErrPromise, "events", func() (*offline.Restored, error) {
				return try(signed, take(signed, func(b *proof.Backup) { b.Events++ }))
			}},
			"last stamp": {storage.ErrPromise, "the last stamp", func() (*offline.Restored, error) {
				return try(signed, take(signed, func(b *proof.Backup) { b.CompleteThrough++ }))
			}},
			"bad name": {nil, "--node-id", func() (*offline.Restored, error) {
				return try(signed, good, func(o *offline.RestoreOptions) { o.NodeID = "a b" })
			}},
			"cut": {context.Canceled, "", func() (*offline.Restored, error) {
				ctx, cancel := context.WithCancel(t.Context())
				o := offline.RestoreOptions{Options: servertest.OfflineOptions(servertest.DiskOptions(t)), Repository: signed, Backup: good, Progress: func(step string, p backup.Progress) {
					if step == "copying" && p.Files == 1 {
						cancel()
					}
				}}
				o.DataDir = target
				return offline.Restore(ctx, o)
			}},
		} {
			_, err := c.f()
			if err == nil || c.err != nil && !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", what, err)
			}
			for _, path := range []string{target, target + ".restoring"} {
				if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s: %s is there: %v", what, path, err)
				}
			}
		}
		// The files of a killed restore do not serve, and do not prevent the next restore.
		half := servertest.DiskOptions(t)
		half.DataDir = target + ".restoring"
		left := filepath.Join(half.DataDir, "store", "000001")
		if err := errors.Join(os.MkdirAll(left, 0o755), os.WriteFile(filepath.Join(left, "000099.sst"), []byte("half"), 0o644),
			os.WriteFile(filepath.Join(half.DataDir, "store", "other"), nil, 0o644)); err != nil {
			t.Fatal(err)
		}
		if s, err := server.Start(t.Context(), half); err == nil {
			_ = s.Close()
			t.Error("half a restore serves")
		}
		r, err := try(signed, good, keyed(key.PublicKey()))
		if err != nil || r.PublicKey != key.PublicKey() || r.Backup.Name != good {
			t.Fatalf("%+v, %v", r, err)
		}
		if _, err := try(signed, good); !errors.Is(err, offline.ErrNotEmpty) || !strings.Contains(err.Error(), target) {
			t.Errorf("a directory that is not empty: %v", err)
		}
		// An empty directory is as good as none.
		target = filepath.Join(root, "empty")
		if err := os.Mkdir(target, 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := try(unsigned, ""); err != nil {
			t.Error(err)
		}
	})
}

// withoutSignatures is a node without the cluster's signing key.
func withoutSignatures(t testing.TB, from backup.Source) backup.Source {
	return func(req *runlogv1.BackupRequest) iter.Seq2[*runlogv1.BackupResponse, error] {
		return func(yield func(*runlogv1.BackupResponse, error) bool) {
			for m, err := range from(req) {
				if note := m.GetManifest(); note != "" {
					st, _, err := proof.Peek(note)
					if err != nil {
						t.Error(err)
					}
					m.Part = &runlogv1.BackupResponse_Manifest{Manifest: proof.Unsigned(st)}
				}
				if !yield(m, err) {
					return
				}
			}
		}
	}
}

// TestRestoreBehindALink: a data directory that is a link to a disk stays one.
func TestRestoreBehindALink(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, servertest.OnDisk(t))
		n.MustAppend("run", servertest.Numbered(0))
		repo := servertest.NewRepository(t)
		n.BackUp(repo)
		disk, link := t.TempDir(), filepath.Join(t.TempDir(), "data")
		if err := os.Symlink(disk, link); err != nil {
			t.Fatal(err)
		}
		opts := servertest.DiskOptions(t)
		opts.DataDir = link
		if _, err := offline.Restore(t.Context(), offline.RestoreOptions{Options: servertest.OfflineOptions(opts), Repository: repo}); err != nil {
			t.Fatal(err)
		}
		if is, err := os.Lstat(link); err != nil || is.Mode()&os.ModeSymlink == 0 {
			t.Errorf("the link was replaced: %v, %v", is, err)
		}
		if _, err := os.Stat(filepath.Join(disk, "identity.json")); err != nil {
			t.Errorf("behind the link is no data directory: %v", err)
		}
	})
}

// TestRestoreHere: the working directory is refused before anything is read, by any name, and stays
// unchanged.
func TestRestoreHere(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, servertest.OnDisk(t))
		n.MustAppend("run", servertest.Numbered(0))
		repo := servertest.NewRepository(t)
		n.BackUp(repo)
		dir := t.TempDir()
		t.Chdir(dir)
		here, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(dir, link); err != nil {
			t.Fatal(err)
		}
		for _, target := range []string{".", "../" + filepath.Base(dir), dir, link} {
			refuseTarget(t, repo, target)
			if after, err := os.Stat(dir); err != nil || !os.SameFile(here, after) {
				t.Errorf("%s: it is another directory now: %v, %v", target, after, err)
			}
		}
		opts := servertest.DiskOptions(t)
		opts.DataDir = "below/it" // relative
		if _, err := offline.Restore(t.Context(), offline.RestoreOptions{Options: servertest.OfflineOptions(opts), Repository: repo}); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "below", "it", "identity.json")); err != nil {
			t.Error(err)
		}
	})
}

// refuseTarget wants a restore into an empty directory to be refused before anything is read.
func refuseTarget(t testing.TB, repo *backup.Repository, target string) {
	t.Helper()
	opts := servertest.DiskOptions(t)
	opts.DataDir = target
	_, err := offline.Restore(t.Context(), offline.RestoreOptions{Options: servertest.OfflineOptions(opts), Repository: repo, Progress: func(step string, _ backup.Progress) {
		t.Errorf("%s: it begins with %s", target, step)
	}})
	if !errors.Is(err, offline.ErrNotReplaceable) {
		t.Errorf("%s: %v", target, err)
	}
	if names, err := os.ReadDir(target); err != nil || len(names) > 0 {
		t.Errorf("%s has %v, %v", target, names, err)
	}
	beside, err := filepath.Glob(filepath.Join(target, "..", "*"+".restoring"+"*"))
	if err != nil || len(beside) > 0 {
		t.Errorf("beside %s are %v, %v", target, beside, err)
	}
}
