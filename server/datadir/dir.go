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

// Dir is a node's directory, owned by this process:
//
//	LOCK            locked while a process uses the directory; holds its process id
//	identity.json   format, names of node and data directory, and the cluster
//	addresses.json  where the node serves now
//	audit.key       the private key with which the cluster signs
//	raft/           the log
//	store/          the store
//	projection/     the projection database; may be deleted while the node is down
type Dir struct {
	disk     vfs.FS
	path     string
	lock     io.Closer
	identity Identity
}

// Identity is what identity.json says.
type Identity struct {
	Format int `json:"format"`
	cluster.Identity
	// CRC32C, in eight hexadecimal digits, is that of the file without this member. A node must not
	// take part under a name that a disk has changed, or believe that it has never taken part.
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

// parseIdentity reads the file, which must be as text writes it.
func parseIdentity(file []byte) (i Identity, err error) {
	if err := json.Unmarshal(file, &i); err != nil {
		return Identity{}, err
	}
	if i.Format != Format {
		return i, nil // of another build, which has its own form
	}
	if text, err := i.Text(); err != nil || !bytes.Equal(text, file) {
		return Identity{}, errors.Join(errors.New("its checksum does not fit"), err)
	}
	return i, nil
}

const (
	// Format of the data directory, as identity.json names it.
	Format   = 5
	lockFile = "LOCK"
	// maxIdentity and maxLine are more than identity.json and LOCK ever have, in bytes.
	maxIdentity = 1 << 20
	maxLine     = 64
)

// InUseError says that another process holds the data directory.
type InUseError struct {
	Dir string
	PID int // 0: unknown
}

func (e *InUseError) Error() string {
	who := "another process"
	if e.PID > 0 {
		who = fmt.Sprintf("process %d", e.PID)
	}
	return fmt.Sprintf("data directory %s is in use by %s; stop it, or choose another with --data-dir", e.Dir, who)
}

// Open makes or opens a data directory. nodeID, where not empty, names a new node and must
// match an old one.
func Open(disk vfs.FS, path, nodeID string) (*Dir, error) {
	d, err := Make(disk, path)
	if err != nil {
		return nil, err
	}
	err = d.identify(nodeID)
	if err == nil {
		// A reader of the file must not see the addresses of the last start.
		err = d.remove("addresses.json")
	}
	if err != nil {
		return nil, errors.Join(err, d.Release())
	}
	return d, nil
}

// Make makes a directory and locks it. Nothing is in a new directory.
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

// make makes the directory, and those above it. A node whose directory went in a crash would have
// forgotten what it acknowledged, so that it is on stable storage before anything is in it.
func (d *Dir) make() error {
	var made []string // the uppermost comes last
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
		d.settle()
		return nil
	}
	for _, path := range made {
		_ = d.disk.Remove(path) // the next start would take it for one that is on stable storage
	}
	return fmt.Errorf("data directory: %w", err)
}

// settle puts on stable storage what a process that was killed made of the path and did not sync.
// It got no further than that where there is no identity. Directories that others made may be none
// of this process's to sync, and those are there.
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

// Path of the directory.
func (d *Dir) Path() string { return d.path }

// Identity is what the node is.
func (d *Dir) Identity() cluster.Identity { return d.identity.Identity }

// File returns the path of a file or directory of the node.
func (d *Dir) File(name string) string { return d.disk.PathJoin(d.path, name) }

// acquire locks the directory. A file system that is in this process's memory does it in its own
// way, and does not tell who holds it.
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

// flock locks a file of the machine, which tells from then on its holder.
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
		return fmt.Errorf("data directory: %s is damaged: %w; restore that file", d.File("identity.json"), err)
	}
	if d.identity.Format != Format {
		return fmt.Errorf("data directory %s has format %d, this build knows %d; start the build that made it, or choose an empty --data-dir",
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

func (d *Dir) makeIdentity(nodeID string) error {
	// A store without an identity is not ours to adopt: its entries name a cluster.
	if _, err := d.disk.Stat(d.File("store")); err == nil {
		return fmt.Errorf("data directory %s has a store but no identity.json; restore that file, or choose another --data-dir", d.path)
	}
	if fault := cluster.NodeIDFault(nodeID); nodeID != "" && fault != "" {
		return fmt.Errorf("--node-id %q %s", nodeID, fault)
	}
	return d.Save(cluster.NewIdentity(nodeID))
}

// Save keeps what the node is.
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

// WriteJSON replaces a file at once and durably.
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

// Release gives the directory up.
func (d *Dir) Release() error { return d.lock.Close() }
