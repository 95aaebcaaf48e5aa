package files_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/storage/internal/files"
)

// TestMarkersD2: a database opens with all that was flushed after a loss of power at any change of
// its directory, whichever changes the disk keeps that were not synced.
func TestMarkersD2(t *testing.T) {
	t.Parallel()
	disk := &losing{FS: vfs.NewCrashableMem(), rng: rand.New(rand.NewPCG(1, 2))}
	if err := files.MakeDir(disk.FS, "db"); err != nil {
		t.Fatal(err)
	}
	for i := range 4 { // each open makes a MANIFEST
		db, err := pebble.Open("db", &pebble.Options{FS: files.WithMarkers(disk), DisableWAL: true, Logger: quiet{}})
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Set(key(i), nil, pebble.NoSync); err != nil {
			t.Fatal(err)
		}
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
		disk.flushed = i + 1
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range disk.losses {
		if err := l.open(); err != nil {
			t.Errorf("loss of power after %s: %v", l.after, err)
		}
	}
}

func key(i int) []byte { return fmt.Append(nil, "key-", i) }

type quiet struct{}

func (quiet) Infof(string, ...any)      {}
func (quiet) Errorf(string, ...any)     {}
func (quiet) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }

// losing keeps what losses of power after a change of a directory may leave.
type losing struct {
	vfs.FS
	rng     *rand.Rand
	flushed int // keys
	losses  []loss
}

type loss struct {
	after   string
	disk    *vfs.MemFS
	flushed int
}

func (d *losing) lose(after string) *vfs.MemFS {
	left := d.FS.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: d.rng})
	d.losses = append(d.losses, loss{after, left, d.flushed})
	return left
}

func (d *losing) Create(path string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(path, c)
	for range 16 {
		d.lose("the creation of " + path)
	}
	return f, err
}

// Remove has the disk keep the removal, and lose what is not synced otherwise: MemFS keeps removals
// only if they are synced.
func (d *losing) Remove(path string) error {
	if err := d.FS.Remove(path); err != nil {
		return err
	}
	for range 16 {
		if err := d.lose("the removal of " + path).Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// open opens the database that a loss of power has left.
func (l *loss) open() error {
	db, err := pebble.Open("db", &pebble.Options{FS: l.disk, DisableWAL: true, Logger: quiet{}})
	if err != nil {
		return err
	}
	for i := range l.flushed {
		_, value, err := db.Get(key(i))
		if err != nil {
			return fmt.Errorf("%s: %w", key(i), err)
		}
		_ = value.Close()
	}
	return db.Close()
}
