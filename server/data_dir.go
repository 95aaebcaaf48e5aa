package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"runlog/server/cluster"
)

// dataDir is a node's directory, owned by this process:
//
//	LOCK            locked while a process uses the directory; holds its process id
//	identity.json   format, names of node and data directory, and the cluster
//	addresses.json  where the node serves now
//	raft/           the log
//	store/          the store
//	projection/     the projection database; may be deleted while the node is down
type dataDir struct {
	path     string
	lock     *os.File
	identity identity
}

// identity is what identity.json says.
type identity struct {
	Format int `json:"format"`
	cluster.Identity
}

const dataDirFormat = 3

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

// openDataDir makes or opens a data directory. nodeID, where not empty, names a new node and must match
// an old one.
func openDataDir(path, nodeID string) (*dataDir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	d := &dataDir{path: path}
	if err := d.acquire(); err != nil {
		return nil, err
	}
	err := d.identify(nodeID)
	if err == nil {
		// Whoever waits for the file must not be told where the node served last time.
		err = d.remove("addresses.json")
	}
	if err != nil {
		return nil, errors.Join(err, d.release())
	}
	return d, nil
}

func (d *dataDir) remove(name string) error {
	if err := os.Remove(d.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("data directory: %w", err)
	}
	return nil
}

func (d *dataDir) file(name string) string { return filepath.Join(d.path, name) }

func (d *dataDir) acquire() error {
	f, err := os.OpenFile(d.file("LOCK"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(d.file("LOCK"))
		pid, _ := strconv.Atoi(strings.TrimSpace(string(holder)))
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return &InUseError{Dir: d.path, PID: pid}
		}
		return fmt.Errorf("data directory: lock %s: %w", d.file("LOCK"), err)
	}
	if err := errors.Join(f.Truncate(0), writeLine(f, strconv.Itoa(os.Getpid()))); err != nil {
		return errors.Join(fmt.Errorf("data directory: %w", err), f.Close())
	}
	d.lock = f
	return nil
}

func writeLine(f *os.File, line string) error {
	_, err := f.WriteAt([]byte(line+"\n"), 0)
	return err
}

func (d *dataDir) identify(nodeID string) error {
	text, err := os.ReadFile(d.file("identity.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return d.makeIdentity(nodeID)
	}
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if err := json.Unmarshal(text, &d.identity); err != nil {
		return fmt.Errorf("data directory: %s: %w", d.file("identity.json"), err)
	}
	if d.identity.Format != dataDirFormat {
		return fmt.Errorf("data directory %s has format %d, this build knows %d", d.path, d.identity.Format, dataDirFormat)
	}
	if err := d.identity.Validate(); err != nil {
		return fmt.Errorf("data directory: %s: %w", d.file("identity.json"), err)
	}
	if nodeID != "" && nodeID != d.identity.NodeID {
		return fmt.Errorf("data directory %s belongs to node %q, not to %q; drop --node-id, give it its own --node-cert, or choose another --data-dir",
			d.path, d.identity.NodeID, nodeID)
	}
	return nil
}

func (d *dataDir) makeIdentity(nodeID string) error {
	// A store without an identity is not ours to adopt: its entries name a cluster.
	if _, err := os.Stat(d.file("store")); err == nil {
		return fmt.Errorf("data directory %s has a store but no identity.json; restore that file, or choose another --data-dir", d.path)
	}
	if fault := cluster.NodeIDFault(nodeID); nodeID != "" && fault != "" {
		return fmt.Errorf("--node-id %q %s", nodeID, fault)
	}
	return d.save(cluster.NewIdentity(nodeID))
}

// save keeps what the node is.
func (d *dataDir) save(me cluster.Identity) error {
	next := identity{dataDirFormat, me}
	if err := d.writeJSON("identity.json", next); err != nil {
		return err
	}
	d.identity = next
	return nil
}

// writeJSON replaces a file at once and durably.
func (d *dataDir) writeJSON(name string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	tmp := d.file(name + ".new")
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(tmp, d.file(name))
	}
	if err == nil {
		err = syncDir(d.path)
	}
	if err != nil {
		return fmt.Errorf("data directory: write %s: %w", name, err)
	}
	return nil
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// release gives the directory up. Closing the file alone would leave the lock with a child process that is
// between fork and exec.
func (d *dataDir) release() error {
	return errors.Join(syscall.Flock(int(d.lock.Fd()), syscall.LOCK_UN), d.lock.Close())
}
