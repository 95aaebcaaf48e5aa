package sim

import (
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func create(t *testing.T, fs vfs.FS, path, text string) vfs.File {
	t.Helper()
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	writeAt(t, f, 0, text)
	dir, err := fs.OpenDir("")
	if err == nil {
		err = dir.Sync()
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func writeAt(t *testing.T, f vfs.File, at int64, text string) {
	t.Helper()
	if _, err := f.WriteAt([]byte(text), at); err != nil {
		t.Fatal(err)
	}
}

func wantText(t *testing.T, d *disk, path, want string) {
	t.Helper()
	got, err := contents(d.mem, path)
	if err != nil || string(got) != want {
		t.Errorf("%s says %q, want %q: %v", path, got, want, err)
	}
}

// TestTheDeadWriteNothing requires that the next process does not see what a killed one still
// writes, also if the kill came while it opened the file.
func TestTheDeadWriteNothing(t *testing.T) {
	d := newDisk()
	open := create(t, d, "open", "before")
	in := d.life.now()
	opened, err := in.OpenReadWrite("open", vfs.WriteCategoryUnspecified)
	next := d.losePower(nil, killed)
	between, err := d.life.file(in, "open", opened, err)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []vfs.File{open, between, create(t, d, "after", "late")} {
		writeAt(t, f, 0, "BEHIND")
	}
	wantText(t, next, "open", "before")
	if _, err := next.Stat("after"); err == nil {
		t.Error("the next process finds a file that the killed one made after its end")
	}
}

// TestWhatAFailedSyncLeaves requires that reads return what a failed sync has not written, that no
// later sync writes it, and that a loss of power takes it, unless it is written again.
func TestWhatAFailedSyncLeaves(t *testing.T) {
	for _, again := range []bool{false, true} {
		d := newDisk()
		d.serving.Store(true)
		f := create(t, d, "1.wal", "kept")
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		writeAt(t, f, 0, "lost")
		d.syncFails.Store(true)
		if err := f.Sync(); err == nil {
			t.Fatal("the sync has not failed")
		}
		d = d.losePower(nil, killed)
		f, err := d.OpenReadWrite("1.wal", vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		wantText(t, d, "1.wal", "lost")
		want := "kept"
		if again {
			want = "lost"
			writeAt(t, f, 0, want)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		wantText(t, d.losePower(nil, 0), "1.wal", want)
	}
}

// TestRepairLeavesANewFileAlone requires that a repaired bit is one of the file that had it: a file
// that has replaced it since may have the changed byte there by itself.
func TestRepairLeavesANewFileAlone(t *testing.T) {
	d := newDisk()
	if err := d.MkdirAll("data", 0o755); err != nil {
		t.Fatal(err)
	}
	const path = "data/vote"
	for _, next := range []string{"", "another one"} {
		create(t, d, path, "0123")
		s, found := d.rot(rand.New(rand.NewPCG(1, 1)))
		if !found {
			t.Fatal("no file was found")
		}
		rotten, err := contents(d.mem, path)
		if err != nil {
			t.Fatal(err)
		}
		want := "0123"
		if next != "" {
			want = string(rotten) + next
			create(t, d, path, want)
		}
		d.repair(s)
		wantText(t, d, path, want)
	}
}

// TestRemovalsMayComeFirst: a loss of power may keep the removal of a file and lose the creation of
// another one before it, until the directory is synced.
func TestRemovalsMayComeFirst(t *testing.T) {
	for _, synced := range []bool{false, true} {
		neither := 0
		for i := range uint64(50) {
			d := newDisk()
			_ = create(t, d, "old", "").Close()
			if f, err := d.Create("new", vfs.WriteCategoryUnspecified); err != nil || f.Close() != nil {
				t.Fatal(err)
			}
			if dir, err := d.OpenDir(""); synced && (err != nil || dir.Sync() != nil) {
				t.Fatal(err)
			}
			if err := d.Remove("old"); err != nil {
				t.Fatal(err)
			}
			left, err := d.losePower(rand.New(rand.NewPCG(i, 1)), 50).List("")
			if err != nil {
				t.Fatal(err)
			}
			if len(left) == 0 {
				neither++
			}
		}
		if (neither > 0) == synced {
			t.Errorf("synced %v: neither file is left %d times", synced, neither)
		}
	}
}
