package procs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"runlog/testbed/await"
)

// wantMount skips the test if it cannot mount file systems, or if a command for them is missing.
func wantMount(t *testing.T, commands ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting file systems wants root")
	}
	for _, command := range append(commands, "mount", "umount") {
		if _, err := exec.LookPath(command); err != nil {
			t.Skipf("wants the command %s", command)
		}
	}
}

// mount mounts a file system until the test ends. The test must start its processes after that, so
// that they end before the file system goes.
func mount(t *testing.T, at string, args ...string) {
	t.Helper()
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := output(exec.Command("mount", append(args, at)...)); err != nil {
		t.Skip("file systems cannot be mounted here: ", err)
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", at).Run() })
}

// newTmpfs makes a file system in memory.
func newTmpfs(t *testing.T, size string) (at string) {
	t.Helper()
	wantMount(t)
	at = filepath.Join(t.TempDir(), "disk")
	mount(t, at, "-t", "tmpfs", "-o", "size="+size, "runlog-procs")
	return at
}

// newExt4 makes a file system in a file.
func newExt4(t *testing.T, size int64) (at, image string) {
	t.Helper()
	wantMount(t, "mkfs.ext4", "e2fsck")
	image = filepath.Join(t.TempDir(), "image")
	f, err := os.Create(image)
	if err == nil {
		err = errors.Join(f.Truncate(size), f.Close(), output(exec.Command("mkfs.ext4", "-q", image)))
	}
	if err != nil {
		t.Fatal(err)
	}
	at = filepath.Join(t.TempDir(), "disk")
	mount(t, at, "-o", "loop", image)
	return at, image
}

// immutableFlag is FS_IMMUTABLE_FL of linux/fs.h.
const immutableFlag = 0x10

// immutable makes a file, also an open one, read-only, or keeps a directory from getting new names.
func immutable(path string, on bool) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		return err
	}
	flags &^= immutableFlag
	if on {
		flags |= immutableFlag
	}
	return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags)
}

// immutableUntil makes a file immutable until the test ends, or repair is called.
func immutableUntil(t *testing.T, path string) (repair func()) {
	t.Helper()
	if err := immutable(path, true); err != nil {
		t.Skip("files cannot be made immutable here: ", err)
	}
	repair = func() { _ = immutable(path, false) }
	t.Cleanup(repair)
	return repair
}

// diskCluster makes a cluster whose third node has its data on another disk; empty: on the same
// one.
func diskCluster(t *testing.T, disk string) (*Cluster, *Node) {
	t.Helper()
	c := New(t, Options{Binary: binary(t), Seed: 1, Keep: *keepFlag})
	victim := c.Nodes()[2]
	if disk != "" {
		victim.Dir = filepath.Join(disk, "data")
	}
	c.Start()
	c.Work(6)
	c.AwaitAck(20)
	return c, victim
}

// wantFailStop requires that a node stops itself while its disk fails, and that its last line
// contains says. The others must go on. Once the disk is repaired, the node must come back, and
// nothing may be lost (D10, APP-2).
//
// It calls again until the node has ended. If that is nil, the load of the clients is enough.
func wantFailStop(t *testing.T, c *Cluster, victim *Node, says string, hurt, again, repair func()) {
	t.Helper()
	victim.ExpectEnd()
	hurt()
	if again != nil {
		await.Poll(t, "the end of the node whose disk fails", func() bool {
			again()
			return !victim.Up()
		})
	}
	code, last := victim.Ended()
	said := victim.last().said()
	if code != exitFailed || !saysOne(last, says) || !strings.Contains(last, "the node stops itself") {
		t.Errorf("exit code %d, last line %q, want %d and %q", code, last, exitFailed, says)
	}
	if strings.Contains(said, "goroutine ") {
		t.Errorf("it said:\n%s", said)
	}
	t.Logf("last line: %s", last)
	c.AwaitAck(20)
	repair()
	victim.Start()
	victim.Ready()
	t.Log(c.Settle())
}

// lead asks again and again for another leader, which is not the victim: all nodes have to write
// the new term.
func lead(c *Cluster, victim *Node) func() {
	return func() {
		leader := c.Leader()
		for _, n := range c.Nodes() {
			if n != leader && n != victim {
				_ = c.Transfer(n)
				return
			}
		}
	}
}

// TestFullDisk fills the disk.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	c, victim := diskCluster(t, newTmpfs(t, "200m"))
	ballast := filepath.Join(filepath.Dir(victim.Dir), "ballast")
	wantFailStop(t, c, victim, unix.ENOSPC.Error(), func() {
		f, err := os.Create(ballast)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for err == nil {
			_, err = f.Write(make([]byte, 64<<10))
		}
	}, lead(c, victim), func() {
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
	})
}

// TestReadOnlyDisk makes the file system read-only, as Linux does after an error.
func TestReadOnlyDisk(t *testing.T) {
	t.Parallel()
	disk, image := newExt4(t, 400<<20)
	c, victim := diskCluster(t, disk)
	// A sync that is under way meanwhile fails with an input/output error.
	wantFailStop(t, c, victim, unix.EROFS.Error()+"|"+unix.EIO.Error(), func() {
		if err := output(exec.Command("mount", "-o", "remount,abort", disk)); err != nil {
			t.Fatal(err)
		}
	}, nil, func() {
		// Of a copy: as long as a process in another namespace still has the file system, it stays
		// as it is.
		repaired := image + ".repaired"
		if err := errors.Join(output(exec.Command("umount", disk)), output(exec.Command("cp", "--sparse=always", image, repaired))); err != nil {
			t.Fatal(err)
		}
		_ = exec.Command("e2fsck", "-fy", repaired).Run() // its exit code says what it has repaired
		if err := output(exec.Command("mount", "-o", "loop", repaired, disk)); err != nil {
			t.Fatal(err)
		}
	})
}

// TestVoteCannotBeWritten requires that a node stops when it cannot write its vote. hashicorp/raft
// panics then.
func TestVoteCannotBeWritten(t *testing.T) {
	t.Parallel()
	c, victim := diskCluster(t, "")
	var repair func()
	wantFailStop(t, c, victim, "write term and vote", func() {
		repair = immutableUntil(t, filepath.Join(victim.Dir, "raft", "vote"))
	}, lead(c, victim), func() { repair() })
}

// TestManifestCannotBeWritten covers Pebble's list of files: Pebble cannot go on without it, and
// ends the process with Fatalf.
func TestManifestCannotBeWritten(t *testing.T) {
	t.Parallel()
	for _, d := range []struct {
		name, glob string
		flush      func(t *testing.T, n *Node)
	}{
		{"store", "store/*/MANIFEST-*", func(t *testing.T, n *Node) {
			_ = exec.Command(n.Binary, "--server", n.grpc, "backup", filepath.Join(t.TempDir(), "backups")).Run()
		}},
		{"projection", "projection/MANIFEST-*", func(_ *testing.T, n *Node) { n.signal(unix.SIGTERM) }},
	} {
		t.Run(d.name, func(t *testing.T) {
			c, victim := diskCluster(t, "")
			var repair func()
			wantFailStop(t, c, victim, "MANIFEST", func() {
				manifests, err := filepath.Glob(filepath.Join(victim.Dir, d.glob))
				if err != nil || len(manifests) != 1 {
					t.Fatalf("%d lists of files: %v", len(manifests), err)
				}
				repair = immutableUntil(t, manifests[0])
				d.flush(t, victim)
			}, nil, func() { repair() })
		})
	}
}
