package sim

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
)

// spot is a byte that has changed on a disk.
type spot struct {
	path string
	at   int
	was  byte
	now  []byte // the whole file, with the changed byte
}

// rot flips a bit of a file that does not change any more: a table of Pebble, a sealed segment of
// the log, or a small file that is replaced as a whole. No node uses the disk meanwhile.
//
// The last segment of the log is left alone. A flipped bit in it looks like a torn write, and the
// node cuts off the log there. The commit mark detects that for all but the last second; a node
// that lost this second may elect a leader that lacks it. Raft assumes that a majority of disks
// keeps what was synced.
func (d *disk) rot(rng *rand.Rand) (spot, bool) {
	files := d.still("data", nil)
	if len(files) == 0 {
		return spot{}, false
	}
	slices.Sort(files)
	path := files[rng.IntN(len(files))]
	data, err := d.mem.UnsafeGetFileDataBuffer(path)
	if err != nil || len(data) == 0 {
		return spot{}, false
	}
	at := rng.IntN(len(data))
	s := spot{path: path, at: at, was: data[at]}
	data[at] ^= 1 << rng.IntN(8)
	s.now = bytes.Clone(data)
	d.rotten.Store(true)
	return s, true
}

// repair flips the bit back if the file is still the one with the bit, and syncs the file: the next
// loss of power takes what is not synced. A loss of power may have taken the flipped bit, and the
// node may have replaced the file since.
func (d *disk) repair(s spot) {
	defer d.rotten.Store(false)
	data, err := d.mem.UnsafeGetFileDataBuffer(s.path)
	if s.path == "" || err != nil || !bytes.Equal(data, s.now) {
		return
	}
	data[s.at] = s.was
	if f, err := d.mem.Open(s.path); err == nil {
		_ = f.Sync() // of a file in memory
		_ = f.Close()
	}
}

// still lists the files below a directory that do not change any more.
func (d *disk) still(dir string, files []string) []string {
	names, err := d.mem.List(dir)
	if err != nil {
		return files
	}
	slices.Sort(names)
	newest := ""
	for _, name := range names {
		if strings.HasSuffix(name, ".wal") {
			newest = name
		}
	}
	for _, name := range names {
		path := dir + "/" + name
		info, err := d.mem.Stat(path)
		switch {
		case err != nil:
		case info.IsDir():
			files = d.still(path, files)
		case strings.HasSuffix(name, ".sst"), name == "vote", name == "snapshots", name == "identity.json",
			strings.HasSuffix(name, ".wal") && name != newest:
			files = append(files, path)
		}
	}
	return files
}
