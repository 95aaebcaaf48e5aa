package wal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"runlog/storage"
)

// killable is a disk on which a process is killed before the next sync of a kind: its writes stay
// in the machine's memory, readable by the next process, and a power loss drops them.
type killable struct {
	vfs.FS
	memory *vfs.MemFS
	killed atomic.Bool
}

var errKilled = errors.New("killed")

func newKillable(t *testing.T, kinds ...errorfs.OpKind) *killable {
	t.Helper()
	k := &killable{memory: vfs.NewCrashableMem()}
	k.FS = errorfs.Wrap(k.memory, errorfs.InjectorFunc(func(op errorfs.Op) error {
		for _, kind := range kinds {
			if op.Kind == kind && k.killed.Load() {
				return errKilled
			}
		}
		return nil
	}))
	// The directory itself is durable.
	if err := errors.Join(k.memory.MkdirAll("raft", 0o755), storage.SyncDir(k.memory, "")); err != nil {
		t.Fatal(err)
	}
	return k
}

// powerless returns the disk after a power loss.
func (k *killable) powerless() *vfs.MemFS { return k.memory.CrashClone(vfs.CrashCloneCfg{}) }

// TestKilledThenPowerlessVote kills a node before its vote is on stable storage. The next process
// finds the vote, and confirms it. A power loss after that must not undo it: the node would vote
// again in that term.
func TestKilledThenPowerlessVote(t *testing.T) {
	t.Parallel()
	k := newKillable(t, errorfs.OpOpenDir)
	s, err := OpenStable(k, "raft", func(error) {})
	if err == nil {
		err = s.SetUint64([]byte(keyLastVoteTerm), 7)
	}
	if err != nil {
		t.Fatal(err)
	}
	k.killed.Store(true)
	if err := s.Set([]byte(keyLastVoteCand), []byte("node-2")); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	said := func(disk vfs.FS) string {
		s, err := OpenStable(disk, "raft", func(error) {})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%d %s", s.state.votedTerm, s.state.candidate)
	}
	before := said(k.memory)
	if after := said(k.powerless()); after != before {
		t.Errorf("the node said that its vote was %q, and after a loss of power %q", before, after)
	}
}

// TestKilledThenPowerlessLog kills a node between the write of an entry and its sync, in the middle
// of a segment and at its seal. The next process finds the entry: hashicorp/raft reports it to the
// leader without writing it again. A power loss after that must not undo it.
func TestKilledThenPowerlessLog(t *testing.T) {
	t.Parallel()
	sealing := uint64(0)
	l, err := openTornLogOn(newKillable(t), "raft")
	if err != nil {
		t.Fatal(err)
	}
	for sealed := false; !sealed; {
		sealing++
		if err := l.StoreLog(tornEntry(sealing)); err != nil {
			t.Fatal(err)
		}
		names, err := l.files.segments("raft")
		if err != nil {
			t.Fatal(err)
		}
		sealed = len(names) > 1
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	sealing-- // the rotation is concurrent, and the last entry may lie in the new segment
	for last := max(sealing, 4) - 3; last <= sealing+1; last++ {
		if err := killedAt(t, last); err != nil {
			t.Errorf("killed at entry %d, of some %d that fill a segment: %v", last, sealing, err)
		}
	}
}

func killedAt(t *testing.T, last uint64) error {
	t.Helper()
	k := newKillable(t, errorfs.OpFileSyncData)
	l, err := openTornLogOn(k, "raft")
	if err != nil {
		return err
	}
	for index := uint64(1); index < last; index++ {
		if err := l.StoreLog(tornEntry(index)); err != nil {
			return err
		}
	}
	k.killed.Store(true)
	if err := l.StoreLog(tornEntry(last)); !errors.Is(err, errKilled) {
		return fmt.Errorf("not killed: %w", err)
	}
	_ = l.Close()
	if l, err = openTornLogOn(k.memory, "raft"); err != nil {
		return err
	}
	end, err := l.LastIndex()
	if err != nil || end != last {
		return fmt.Errorf("the log ends at %d: %w", end, err)
	}
	kept := k.powerless()
	// the log continues, and syncs only the file that it writes
	if err := l.check(last); err != nil {
		return err
	}
	later := k.powerless()
	if err := l.Close(); err != nil {
		return err
	}
	for disk, last := range map[*vfs.MemFS]uint64{kept: last, later: last + 1} {
		if l, err = openTornLogOn(disk, "raft"); err != nil {
			return err
		}
		if err := errors.Join(l.check(last), l.Close()); err != nil {
			return fmt.Errorf("after a loss of power: %w", err)
		}
	}
	return nil
}

// TestLogAtEveryOperation fails each disk operation, alone or with all later ones, while a log
// fills several segments. Then starts and power losses alternate. Acknowledged entries are there
// each time, and the log continues.
func TestLogAtEveryOperation(t *testing.T) {
	t.Parallel()
	for at := int64(1); at < 700; at += 3 {
		if err := failAt(at, at%2 == 0, []int{0, 100, 50}[at/3%3]); err != nil {
			t.Errorf("from operation %d on, only that one %t: %v", at, at%2 == 0, err)
		}
	}
}

func failAt(at int64, alone bool, percent int) error {
	memory, operations := vfs.NewCrashableMem(), int64(0)
	if err := errors.Join(memory.MkdirAll("raft", 0o755), storage.SyncDir(memory, "")); err != nil {
		return err
	}
	failing := errorfs.Wrap(memory, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileClose || op.Kind != errorfs.OpOpenDir && op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
			return nil
		}
		if n := atomic.AddInt64(&operations, 1); n == at || n > at && !alone {
			return errKilled
		}
		return nil
	}))
	acknowledged := uint64(0)
	if l, err := openTornLogOn(failing, "raft"); err == nil {
		for acknowledged < 400 && l.StoreLog(tornEntry(acknowledged+1)) == nil {
			acknowledged++
		}
		_ = l.Close()
	}
	for round := range uint64(3) {
		l, err := openTornLogOn(memory, "raft")
		if err != nil {
			return fmt.Errorf("start %d: %w", round, err)
		}
		end, err := l.LastIndex()
		if err == nil && end < acknowledged {
			err = fmt.Errorf("the log ends at %d, acknowledged were %d", end, acknowledged)
		}
		if err == nil {
			err = l.check(end)
		}
		acknowledged = end + 1
		kept := memory.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(uint64(at), round))})
		if err = errors.Join(err, l.Close()); err != nil {
			return fmt.Errorf("start %d: %w", round, err)
		}
		memory = kept
	}
	return nil
}

// forgetful is a disk with Linux's behaviour after a failed sync: it shows the written data, but a
// later sync does nothing until the data are written again.
type forgetful struct {
	vfs.FS
	failing atomic.Bool
	clean   atomic.Bool // of the one synced file
}

func (d *forgetful) OpenReadWrite(path string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := d.FS.OpenReadWrite(path, c, opts...)
	return &forgetfulFile{f, d}, err
}

type forgetfulFile struct {
	vfs.File
	d *forgetful
}

func (f *forgetfulFile) WriteAt(p []byte, at int64) (int, error) {
	f.d.clean.Store(false)
	return f.File.WriteAt(p, at)
}

func (f *forgetfulFile) SyncData() error {
	if f.d.failing.Load() {
		f.d.clean.Store(true)
		return errKilled
	}
	if f.d.clean.Load() {
		return nil
	}
	return f.File.SyncData()
}

// TestSyncFailedThenPowerless proves APP-2 and D10: a node stops after a failed sync, and restarts.
// The entries that it finds then are in the log, also after a power loss.
func TestSyncFailedThenPowerless(t *testing.T) {
	t.Parallel()
	memory := vfs.NewCrashableMem()
	disk := &forgetful{FS: memory}
	if err := errors.Join(memory.MkdirAll("wal", 0o755), storage.SyncDir(memory, "")); err != nil {
		t.Fatal(err)
	}
	l, err := openTornLogOn(disk, "wal")
	if err != nil {
		t.Fatal(err)
	}
	for index := uint64(1); index <= 3; index++ {
		if err := l.StoreLog(tornEntry(index)); err != nil {
			t.Fatal(err)
		}
	}
	disk.failing.Store(true)
	if err := l.StoreLog(tornEntry(4)); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	_ = l.Close()
	disk.failing.Store(false)
	if l, err = openTornLogOn(disk, "wal"); err != nil {
		t.Fatal(err)
	}
	last, err := l.LastIndex()
	if err = errors.Join(err, l.Close()); err != nil || last != 4 {
		t.Fatalf("the log ends at %d: %v; the test is about one that ends at 4", last, err)
	}
	if l, err = openTornLogOn(memory.CrashClone(vfs.CrashCloneCfg{}), "wal"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.check(4), l.Close()); err != nil {
		t.Error(err)
	}
}
