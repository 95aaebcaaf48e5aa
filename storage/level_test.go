package storage_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/storage"
	"runlog/storage/machine"
	"runlog/storage/storagetest"
)

// oneLine fails unless an error says each of the texts, in one line.
func oneLine(t *testing.T, err error, says ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, text := range says {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q does not say %q", err, text)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("%q has more than a line", err)
	}
}

func raise(t *testing.T, l *storagetest.Local, level uint32, members uint64) storage.Outcome {
	t.Helper()
	op, err := storage.RaiseLevel(level, members)
	if err != nil {
		t.Fatal(err)
	}
	c, err := storage.EncodeCommand(op)
	return command(t, l.Store, l.Applied().Index+1, c, err)
}

// TestLevelRises: the level rises and never falls, only for the members that were asked, and
// survives restarts, installs and crashes of the proposal that raised it.
func TestLevelRises(t *testing.T) {
	l := open(t, storage.Options{FeatureLevel: 5})
	if got := l.Store.Level(); got != storage.CoreLevel || l.Store.FeatureLevel() != 5 {
		t.Fatalf("level %d of %d", got, l.Store.FeatureLevel())
	}
	var refused *storage.RaiseError
	for _, c := range []struct {
		level   uint32
		members uint64
		want    uint32 // 0: refused
	}{{2, 0, 2}, {2, 0, 0}, {1, 0, 0}, {0, 0, 0}, {4, 7, 0}, {4, 0, 4}, {3, 0, 0}, {5, 0, 5}} {
		before := l.Store.Level()
		o := raise(t, l, c.level, c.members)
		if c.want == 0 {
			if !errors.As(o.Err, &refused) || l.Store.Level() != before {
				t.Fatalf("%+v: %v, level %d", c, o.Err, l.Store.Level())
			}
			oneLine(t, o.Err, "not raised")
		} else if o.Err != nil || l.Store.Level() != c.want {
			t.Fatalf("%+v: %v, level %d", c, o.Err, l.Store.Level())
		}
		if err := l.Reopen(); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Store.ApplyMembership(20, 1, []byte("members")); err != nil {
		t.Fatal(err)
	}
	other := open(t, storage.Options{FeatureLevel: 5})
	if err := other.Store.Install(bytes.NewReader(streamOf(t, l))); err != nil {
		t.Fatal(err)
	}
	if got := other.Store.Level(); got != 5 {
		t.Errorf("level %d after an install", got)
	}
	if err := errors.Join(l.Close(), other.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestLevelOfOtherMembers: an answer of other members than there are now does not raise the level.
func TestLevelOfOtherMembers(t *testing.T) {
	l := open(t, storage.Options{FeatureLevel: 2})
	if err := l.Store.ApplyMembership(1, 1, []byte("members")); err != nil {
		t.Fatal(err)
	}
	oneLine(t, raise(t, l, 2, 0).Err, "members have changed in entry 1")
	if o := raise(t, l, 2, 1); o.Err != nil || l.Store.Level() != 2 {
		t.Fatalf("%v, level %d", o.Err, l.Store.Level())
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestOlderBuild: whatever way a store or a log comes to a build that does not support its level,
// it is refused with one line that says what to do, and nothing changes.
func TestOlderBuild(t *testing.T) {
	newer := storage.Options{FeatureLevel: 2, FS: vfs.NewMem()}
	l := open(t, newer)
	write := storagetest.Request{Write: &storagetest.Write{Needs: 2}}
	c, err := write.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var level *storage.LevelError
	if err := l.Store.CheckLevel(c); !errors.As(err, &level) || level.Needs != 2 || level.Level != 1 {
		t.Fatalf("CheckLevel at level 1: %v", err)
	}
	oneLine(t, level, "feature level 2", "level 1", "upgrade")
	o := command(t, l.Store, 1, c, nil) // a proposer that has not checked
	if !errors.As(o.Err, &level) {
		t.Fatalf("applied at level 1: %v", o.Err)
	}
	raised := l.Applied().Index + 1
	raise(t, l, 2, 0)
	if err := l.Store.CheckLevel(c); err != nil {
		t.Fatalf("CheckLevel at level 2: %v", err)
	}
	if o := command(t, l.Store, raised+1, c, nil); o.Err != nil {
		t.Fatal(o.Err)
	}
	stream := streamOf(t, l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}

	var old *storage.BuildTooOldError
	_, err = storagetest.Open(storage.Options{FeatureLevel: 1, FS: newer.FS})
	if !errors.As(err, &old) {
		t.Errorf("Open: %v", err)
	}
	oneLine(t, err, "feature level 2", "up to 1", "upgrade this node's binary")

	older := open(t, storage.Options{FeatureLevel: 1, Machines: machine.All()})
	if err := older.Store.Install(bytes.NewReader(stream)); !errors.As(err, &old) {
		t.Errorf("Install: %v", err)
	}
	if older.Store.Level() != 1 || older.Applied().Index != 0 {
		t.Error("something was installed")
	}
	err = older.Store.CheckLevel(c)
	oneLine(t, err, "kind 900", "upgrade this node's binary")
	p := storage.NewProposal(storagetest.Cluster, 0)
	p.Add(c)
	_, err = older.Store.Apply(1, 1, p.Seal(1))
	var unknown *storage.UnknownOperationError
	if !errors.As(err, &unknown) || unknown.Kind != storagetest.WriterKind || unknown.Level != 1 || unknown.Supports != 1 {
		t.Errorf("Apply: %v", err)
	}
	oneLine(t, err, "entry 1", "kind 900", "up to 1", "level 1", "upgrade this node's binary")
	_ = older.Close()

	older = open(t, storage.Options{FeatureLevel: 1})
	op, err := storage.RaiseLevel(2, 0)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = storage.EncodeCommand(op); err != nil {
		t.Fatal(err)
	}
	p = storage.NewProposal(storagetest.Cluster, 0)
	p.Add(c)
	if _, err = older.Store.Apply(1, 1, p.Seal(1)); !errors.As(err, &old) {
		t.Errorf("Apply of the raise: %v", err)
	}
	oneLine(t, err, "feature level 2", "upgrade this node's binary")
	_ = older.Close()
}

// TestLevelOfCoreKinds: a kind of the core that this build does not know is not proposed: it would
// stop every member. Nor is a BeginIncarnation, which is for a log that no node proposes to.
func TestLevelOfCoreKinds(t *testing.T) {
	l := open(t, storage.Options{})
	release, err := storage.ReleaseHold()
	if err != nil {
		t.Fatal(err)
	}
	for kind := uint32(1); kind < storage.FirstMachineKind; kind++ {
		c, err := storage.EncodeCommand(storage.Operation{Kind: kind})
		if err != nil {
			t.Fatal(err)
		}
		var unknown *storage.UnknownOperationError
		if err := l.Store.CheckLevel(c); errors.As(err, &unknown) != (kind > 2 && kind != release.Kind) {
			t.Errorf("kind %d: %v", kind, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
