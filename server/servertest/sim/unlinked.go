package sim

import (
	"maps"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// unlinked holds the files whose removal was not synced. MemFS keeps them all in a loss of power; a
// disk may have written a removal before changes that came earlier.
type unlinked struct {
	mu    sync.Mutex
	paths map[string]bool
}

func (u *unlinked) add(path string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.paths == nil {
		u.paths = map[string]bool{}
	}
	u.paths[path] = true
}

// made is called when there is a file of that name again.
func (u *unlinked) made(path string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.paths, path)
}

// synced is called when a directory was.
func (u *unlinked) synced(fs vfs.FS, dir string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.paths, func(path string, _ bool) bool { return fs.PathDir(path) == fs.PathDir(fs.PathJoin(dir, "x")) })
}

// lose removes so many percent of the files from the disk that a loss of power has left.
func (u *unlinked) lose(left *vfs.MemFS, rng *rand.Rand, percent int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, path := range slices.Sorted(maps.Keys(u.paths)) {
		if percent > 0 && rng.IntN(100) < percent {
			_ = left.Remove(path) // The disk may not have had the file.
		}
	}
}
