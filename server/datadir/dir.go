package datadir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"

	"runlog/server/cluster"
	"runlog/storage"
)

// Dir is a node's data directory, locked by this process:
//
//	LOCK            locked while a process uses the directory; holds its process id
//	identity.json   format, names of node and data directory, and the cluster
//	addresses.json  where the node serves now
//	audit.key       the private key with which the cluster signs
//	access.late     calls that the access log of the cluster does not have yet
//	raft/           the log
//	store/          the store
//	projection/     the projection database; may be deleted while the node is down
type Dir struct {
	disk     vfs.FS
	path     string
	lock     io.Closer
	identity Identity
	made     []string // directories that Make made, the uppermost last
}

// Identity is the content of identity.json.
type Identity struct {
	Format int `json:"format"`
	cluster.Identity
	// CRC32C is the checksum of the file without this member, in eight hexadecimal digits. A
	// damaged file must not give a node another name, or make it forget that it has taken part in a
	// cluster.
	CRC32C string `json:"crc32c,omitempty"`
}

// Text returns the file, with its checksum.
func (i Identity) Text() ([]byte, error) {
	i.CRC32C = ""
	text, err := json.MarshalIndent(i, "", "  ")
	if err != nil {
		return nil, err
	}
	i.CRC32C = fmt.Sprintf("%08x", crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli)))
	if text, err = json.MarshalIndent(i, "", "  "); err != nil {
		return nil, err
	}
	return append(text, '\n'), nil
}

// parseIdentity parses the file, which must be exactly as Text writes it.
func parseIdentity(file []byte) (i Identity, err error) {
	if err := json.Unmarshal(file, &i); err != nil {
		return Identity{}, err
	}
	if i.Format != Format {
		return i, nil // Another build has its own form.
	}
	if text, err := i.Text(); err != nil || !bytes.Equal(text, file) {
		return Identity{}, errors.Join(errors.New("checksum does not match"), err)
	}
	return i, nil
}

const (
	// Format of the data directory, as identity.json names it.
	Format = 9
	// KeyFile has the private key with which the cluster signs.
	KeyFile = "audit.key"
	// AccessFile has calls that the access log of the cluster does not have yet.
	AccessFile = "access.late"
	lockFile   = "LOCK"
	// maxIdentity and maxLine exceed the sizes of identity.json and LOCK, in bytes.
	maxIdentity = 1 << 20
	maxLine     = 64
)

// InUseError means that another process holds the data directory.
type InUseError struct {
	Dir string
	PID int // 0: unknown
}

func (e *InUseError) Error() string {
	holder := "another process"
	if e.PID > 0 {
		holder = fmt.Sprintf("process %d", e.PID)
	}
	return fmt.Sprintf("data directory %s is in use by %s; stop it, or choose another with --data-dir", e.Dir, holder)
}

// Open makes or opens a data directory. If nodeID is not empty, it names a new node and must match
// the name of an existing one.
func Open(disk vfs.FS, path, nodeID string) (*Dir, error) {
	d, err := Make(disk, path)
	if err != nil {
		return nil, err
	}
	err = d.identify(nodeID)
	if err == nil {
		// A reader of the file must not find the addresses of the last start.
		err = d.remove("addresses.json")
	}
	if err != nil {
		d.Discard()
		return nil, errors.Join(err, d.Release())
	}
	return d, nil
}

// Discard removes a directory that this process has just made, because the node cannot start. An
// existing directory stays as it is. The caller still releases the directory.
func (d *Dir) Discard() {
	if len(d.made) == 0 {
		return
	}
	for _, name := range []string{"identity.json", lockFile} {
		_ = d.disk.Remove(d.File(name))
	}
	for _, path := range d.made {
		_ = d.disk.Remove(path) // One that has other files stays.
	}
}

// Make makes or opens a directory and locks it. A new directory contains the lock file only.
func Make(disk vfs.FS, path string) (*Dir, error) {
	d := &Dir{disk: disk, path: path}
	if err := d.make(); err != nil {
		return nil, err
	}
	if err := d.acquire(); err != nil {
		return nil, err
	}
	return d, nil
}

// make makes the directory and its missing parents. All are on stable storage before the node
// writes into them: a node that loses its directory in a crash would forget what it acknowledged.
func (d *Dir) make() error {
	var made []string // the uppermost directory comes last
	for path := d.path; ; path = d.disk.PathDir(path) {
		if _, err := d.disk.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		made = append(made, path)
	}
	err := d.disk.MkdirAll(d.path, 0o700)
	for _, path := range made {
		if err == nil {
			err = storage.SyncDir(d.disk, d.disk.PathDir(path))
		}
	}
	if err == nil {
		d.made = made
		d.settle()
		return nil
	}
	for _, path := range made {
		_ = d.disk.Remove(path) // The next start would assume that it is on stable storage.
	}
	return fmt.Errorf("data directory: make %s: %w", d.path, err)
}

// settle syncs the path again, because a killed process may have made it without syncing it. A
// directory without an identity is in this state. Errors are ignored: directories of other users
// may not be syncable, and they existed before.
func (d *Dir) settle() {
	if _, err := d.disk.Stat(d.File("identity.json")); err == nil {
		return
	}
	for path, above := d.path, d.disk.PathDir(d.path); above != path; path, above = above, d.disk.PathDir(above) {
		_ = storage.SyncDir(d.disk, above)
	}
}

func (d *Dir) remove(name string) error {
	if err := d.disk.Remove(d.File(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("data directory: %w", err)
	}
	return nil
}

// Path returns the path of the directory.
func (d *Dir) Path() string { return d.path }

// Identity returns the node's identity.
func (d *Dir) Identity() cluster.Identity { return d.identity.Identity }

// File returns the path of a file or directory of the node.
func (d *Dir) File(name string) string { return d.disk.PathJoin(d.path, name) }

// acquire locks the directory. An in-memory file system has its own lock, which does not name its
// holder.
func (d *Dir) acquire() error {
	f, err := d.disk.OpenReadWrite(d.File(lockFile), vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if f.Fd() != vfs.InvalidFd {
		return d.flock(f)
	}
	if err = f.Close(); err == nil {
		d.lock, err = d.disk.Lock(d.File(lockFile))
	}
	if err != nil {
		return d.lockError(err, 0)
	}
	return nil
}

// flock locks a file of the operating system and writes this process's id into it.
func (d *Dir) flock(f vfs.File) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder, _ := storage.ReadFile(d.disk, d.File(lockFile), maxLine)
		pid, _ := strconv.Atoi(strings.TrimSpace(string(holder)))
		_ = f.Close()
		return d.lockError(err, pid)
	}
	err := storage.Restrict(f, 0o644)
	if err == nil {
		err = unix.Ftruncate(int(f.Fd()), 0)
	}
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("data directory: %w", err), f.Close())
	}
	d.lock = flocked{f}
	return nil
}

func (d *Dir) lockError(err error, holder int) error {
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return &InUseError{Dir: d.path, PID: holder}
	}
	return fmt.Errorf("data directory: lock %s: %w", d.File(lockFile), err)
}

// flocked is a locked file of the machine.
type flocked struct{ vfs.File }

// Close gives the lock up. Closing the file alone would leave it with a child process that is
// between fork and exec.
func (f flocked) Close() error {
	return errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), f.File.Close())
}

func (d *Dir) identify(nodeID string) error {
	text, err := storage.ReadFile(d.disk, d.File("identity.json"), maxIdentity)
	if errors.Is(err, fs.ErrNotExist) {
		return d.makeIdentity(nodeID)
	}
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if d.identity, err = parseIdentity(text); err != nil {
		return d.damaged(nodeID, "%s is damaged: %w", d.File("identity.json"), err)
	}
	if d.identity.Format != Format {
		return fmt.Errorf("data directory %s has format %d, this build knows %d; start the build that made it, or choose another, new --data-dir",
			d.path, d.identity.Format, Format)
	}
	if err := d.identity.Validate(); err != nil {
		return fmt.Errorf("data directory: %s: %w", d.File("identity.json"), err)
	}
	if nodeID != "" && nodeID != d.identity.NodeID {
		return fmt.Errorf("data directory %s belongs to node %q, not to %q; drop --node-id, give it its own --node-cert, or choose another --data-dir",
			d.path, d.identity.NodeID, nodeID)
	}
	return nil
}

// damaged returns the error about a file of the directory, with its remedy.
func (d *Dir) damaged(nodeID, format string, args ...any) error {
	return cluster.Remedy(storage.Damage(fmt.Errorf("data directory: "+format, args...)), d.path, nodeID, 0)
}

func (d *Dir) makeIdentity(nodeID string) error {
	// A store without an identity must not be adopted: its entries name a cluster.
	if _, err := d.disk.Stat(d.File("store")); err == nil {
		return d.damaged(nodeID, "%s is missing, but a store exists", d.File("identity.json"))
	}
	if fault := cluster.NodeIDFault(nodeID); nodeID != "" && fault != "" {
		return fmt.Errorf("--node-id %q %s", nodeID, fault)
	}
	return d.Save(cluster.NewIdentity(nodeID))
}

// Save replaces the node's identity.
func (d *Dir) Save(me cluster.Identity) error {
	next := Identity{Format: Format, Identity: me}
	text, err := next.Text()
	if err == nil {
		err = storage.ReplaceFile(d.disk, d.File("identity.json"), text, 0o644)
	}
	if err != nil {
		return fmt.Errorf("data directory: write identity.json: %w", err)
	}
	d.identity = next
	return nil
}

// WriteJSON replaces a file atomically and durably.
func (d *Dir) WriteJSON(name string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if err := storage.ReplaceFile(d.disk, d.File(name), append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("data directory: write %s: %w", name, err)
	}
	return nil
}

// Release unlocks the directory.
func (d *Dir) Release() error { return d.lock.Close() }
