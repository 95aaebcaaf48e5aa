package directory

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"regexp"
	"strconv"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/storage/internal/files"
	"runlog/storage/internal/record"
)

// A store's directory:
//
//	CURRENT             names the live database
//	000001/             a database; live is only the one that CURRENT names
//	checkpoint-000002/  hard links to a database's files, while they are streamed
//	seed-000001-…/      what has come of another node's checkpoint that is pulled file by
//	                    file, since database 1 is the live one; then 16 hex digits that name
//	                    where it comes from
//
// Every database or checkpoint but the live one was left behind by a crash, or by an install that
// ended badly, and goes when the store is opened. So does a seed that is older than the live
// database; the others are there to be continued. CURRENT is replaced as a whole, so that at any
// moment either the old or the new database is the store, whole (D5).
const (
	currentFile      = "CURRENT"
	currentNew       = currentFile + files.ReplacingSuffix
	checkpointPrefix = "checkpoint-"
	seedPrefix       = "seed-"
)

var (
	errLayout  = errors.New("storage: not a store's directory")
	numberedRE = regexp.MustCompile(`^(?:` + checkpointPrefix + `)?([0-9]{6,19})$`)
	seedRE     = regexp.MustCompile(`^` + seedPrefix + `([0-9]{6,19})-[0-9a-f]{16}$`)
)

// current is what CURRENT says.
type current struct {
	number uint64 // of the live database
	// installed is the applied index with which the database came here; 0: it began here, empty.
	installed uint64
}

// maxCurrent is more than the file ever has.
const maxCurrent = 256

func (c current) line() string {
	line := fmt.Sprintf("runlog store 1 database %06d installed %d", c.number, c.installed)
	return fmt.Sprintf("%s crc32c %08x\n", line, crc32.Checksum([]byte(line), record.Castagnoli))
}

func parseCurrent(line string) (current, error) {
	var c current
	var sum uint32
	_, err := fmt.Sscanf(line, "runlog store 1 database %d installed %d crc32c %x\n", &c.number, &c.installed, &sum)
	if err != nil || c.number == 0 || c.line() != line {
		return current{}, fmt.Errorf("%w: it says %q", errLayout, line)
	}
	return c, nil
}

func databaseDir(number uint64) string   { return fmt.Sprintf("%06d", number) }
func checkpointDir(number uint64) string { return checkpointPrefix + databaseDir(number) }

// seedDir is where a seed from an origin comes to while a database is the live one.
func seedDir(live uint64, origin string) string {
	sum := sha256.Sum256([]byte(origin))
	return fmt.Sprintf("%s%s-%x", seedPrefix, databaseDir(live), sum[:8])
}

// outdatedSeed tells whether a directory is a seed that was begun for another database than the
// live one.
func outdatedSeed(name string, live uint64) bool {
	m := seedRE.FindStringSubmatch(name)
	return m != nil && m[1] != databaseDir(live)
}

// path of a file or directory of the store.
func (d *Directory) path(name string) string { return d.opts.FS.PathJoin(d.opts.Dir, name) }

// nextNumber is one that no directory has, nor had since the store was opened.
func (d *Directory) nextNumber() uint64 { return d.lastNumber.Add(1) }

// readCurrent reads CURRENT, which it makes in a new directory. It comes before the first database,
// so that a database without it has lost it.
func (d *Directory) readCurrent() (current, error) {
	names, err := d.opts.FS.List(d.opts.Dir)
	if err != nil {
		return current{}, fmt.Errorf("storage: list %s: %w", d.opts.Dir, err)
	}
	exists, begun := false, true
	for _, name := range names {
		exists = exists || name == currentFile
		begun = begun && name == currentNew
	}
	switch {
	case exists:
		return readCurrentFile(d.opts.FS, d.path(currentFile))
	case !begun:
		return current{}, files.Damage(fmt.Errorf("%w: %s is missing, but databases exist", errLayout, d.path(currentFile)))
	}
	c := current{number: 1}
	return c, d.writeCurrent(c)
}

func readCurrentFile(fs vfs.FS, path string) (current, error) {
	line, err := files.Read(fs, path, maxCurrent)
	if err != nil {
		return current{}, fmt.Errorf("storage: read %s: %w", path, err)
	}
	c, err := parseCurrent(string(line))
	if err != nil {
		err = files.Damage(fmt.Errorf("storage: %s is damaged: %w", path, err))
	}
	return c, err
}

// writeCurrent replaces CURRENT. After an error a restart may find either of the two.
func (d *Directory) writeCurrent(c current) error {
	if err := files.Replace(d.opts.FS, d.path(currentFile), []byte(c.line()), 0o666); err != nil {
		return fmt.Errorf("storage: write %s: %w", currentFile, err)
	}
	return nil
}

// sweep removes what is no part of the store, and sets lastNumber.
func (d *Directory) sweep(live uint64) error {
	names, err := d.opts.FS.List(d.opts.Dir)
	if err != nil {
		return fmt.Errorf("storage: list %s: %w", d.opts.Dir, err)
	}
	last := live
	for _, name := range names {
		leftover := name == currentNew || outdatedSeed(name, live)
		if m := numberedRE.FindStringSubmatch(name); m != nil && name != databaseDir(live) {
			n, err := strconv.ParseUint(m[1], 10, 63)
			if err != nil {
				return fmt.Errorf("%w: %s: %w", errLayout, name, err)
			}
			last, leftover = max(last, n), true
		}
		if !leftover {
			continue
		}
		if err := d.opts.FS.RemoveAll(d.path(name)); err != nil {
			return fmt.Errorf("storage: remove what a crash left behind: %w", err)
		}
	}
	d.lastNumber.Store(last)
	return nil
}

// removeSeeds removes the seeds that are chosen.
func (d *Directory) removeSeeds(chosen func(name string) bool) error {
	names, err := d.opts.FS.List(d.opts.Dir)
	if err != nil {
		return fmt.Errorf("storage: list %s: %w", d.opts.Dir, err)
	}
	for _, name := range names {
		if seedRE.MatchString(name) && chosen(name) {
			err = errors.Join(err, d.opts.FS.RemoveAll(d.path(name)))
		}
	}
	if err != nil {
		return fmt.Errorf("storage: remove seed: %w", err)
	}
	return nil
}

// retireSeeds removes what was pulled for databases that an install has replaced, elsewhere: it may
// be much. One that is under way is left to its owner.
func (d *Directory) retireSeeds() {
	d.handles.Lock()
	defer d.handles.Unlock()
	if d.handles.closed || d.seeding.Load() {
		return
	}
	d.handles.retiring.Go(func() {
		err := d.removeSeeds(func(name string) bool {
			// Looked up after the list was read, so that a seed which began since then is of this
			// one.
			live := d.current.Load()
			return live != nil && outdatedSeed(name, live.number)
		})
		if err != nil {
			d.opts.Logger.Warn("a seed that is not needed any more was not removed", "err", err)
		}
	})
}
