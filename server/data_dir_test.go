package server_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server"
	"runlog/server/datadir"
	"runlog/server/servertest"
	"runlog/testbed/bubble"
)

func TestDataDirInUse(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, servertest.OnDisk(t))
		n.Append("run", servertest.NewEvent("RunStarted"))
		second := n.Opts
		second.Registry = nil
		_, err := server.Start(t.Context(), second)
		var inUse *datadir.InUseError
		if !errors.As(err, &inUse) || inUse.PID != os.Getpid() || inUse.Dir != n.Opts.DataDir {
			t.Fatalf("second server on the directory: %v", err)
		}
		if text := err.Error(); !strings.Contains(text, fmt.Sprint("process ", os.Getpid())) || !strings.Contains(text, "--data-dir") || strings.Contains(text, "\n") {
			t.Errorf("message %q", text)
		}
		n.Append("run", servertest.NewEvent("RunCompleted")) // the first one is unharmed
	})
}

// TestDataDirOfAnotherProcess names the process that holds the lock, and takes over once it is
// gone.
func TestDataDirOfAnotherProcess(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		opts := servertest.DiskOptions(t)
		holder := exec.Command(os.Args[0], "-test.run=^TestHoldLock$")
		holder.Env = append(os.Environ(), "RUNLOG_TEST_HOLD="+opts.DataDir)
		in, err := holder.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := holder.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := holder.Start(); err != nil {
			t.Fatal(err)
		}
		defer holder.Process.Kill()
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
			t.Fatalf("the other process says %q, %v", line, err)
		}
		_, err = server.Start(t.Context(), opts)
		var inUse *datadir.InUseError
		if !errors.As(err, &inUse) || inUse.PID != holder.Process.Pid {
			t.Fatalf("start beside process %d: %v", holder.Process.Pid, err)
		}
		// A holder that dies releases the lock. Its process id stays in the file and means nothing
		// then.
		if err := holder.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = holder.Wait()
		_ = in.Close()
		n := &servertest.Node{T: t, Opts: opts}
		n.Start()
		n.Close()
	})
}

// TestDataDirModes: only the node's user can enter its directory and write to its files. LOCK names
// the current holder, whatever it contained before.
func TestDataDirModes(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, servertest.OnDisk(t), func(o *server.Options) {
			o.DataDir = filepath.Join(o.DataDir, "made", "with", "those above")
			servertest.Seldom(0, o)
		})
		for path, want := range map[string]os.FileMode{"": 0o700, "..": 0o700, "LOCK": 0o644, "identity.json": 0o644, "addresses.json": 0o644, datadir.KeyFile: 0o600} {
			var info os.FileInfo
			var err error
			bubble.Until(t, path, func() bool { info, err = os.Stat(filepath.Join(n.Opts.DataDir, path)); return err == nil })
			if has := info.Mode().Perm(); has&^want != 0 || has&0o600 != 0o600 {
				t.Errorf("%q has mode %v, want %v", path, has, want)
			}
		}
		lock := filepath.Join(n.Opts.DataDir, "LOCK")
		n.Restart(func() {
			if err := os.WriteFile(lock, []byte("1234567890123\n\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		})
		if text, err := os.ReadFile(lock); err != nil || string(text) != fmt.Sprintln(os.Getpid()) {
			t.Errorf("LOCK says %q, %v", text, err)
		}
	})
}

// TestDataDirSynced: a directory that could not be synced does not exist for the next start.
func TestDataDirSynced(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		for failing := range 3 {
			mem, syncs := vfs.NewMem(), 0
			disk := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if op.Kind == errorfs.OpFileSync {
					if syncs++; syncs > failing {
						return errorfs.ErrInjected
					}
				}
				return nil
			}))
			if _, err := datadir.Open(disk, "/a/b/c", ""); !errors.Is(err, errorfs.ErrInjected) {
				t.Fatalf("opened after %d syncs: %v", failing, err)
			}
			if names, err := mem.List("/"); err != nil || len(names) > 0 {
				t.Errorf("after %d syncs there is %q, %v", failing, names, err)
			}
			dir, err := datadir.Open(mem, "/a/b/c", "")
			if err != nil {
				t.Fatal(err)
			}
			if err := dir.Release(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestHoldLock is the other process of TestDataDirOfAnotherProcess.
func TestHoldLock(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		dir := os.Getenv("RUNLOG_TEST_HOLD")
		if dir == "" {
			t.Skip("runs in a process of its own")
		}
		if _, err := datadir.Open(vfs.Default, dir, ""); err != nil {
			t.Fatal(err)
		}
		fmt.Println("held")
		_, _ = os.Stdin.Read(make([]byte, 1))
	})
}

// TestPortInUse: the error is one line with the flag, nothing stays open, and a start right after
// it works.
func TestPortInUse(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		taken, err := servertest.Net(t).Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer taken.Close()
		opts := servertest.Options(t)
		for flag, set := range map[string]func(*server.Options, string){
			"--grpc-listen":  func(o *server.Options, a string) { o.GRPCListen = a },
			"--http-listen":  func(o *server.Options, a string) { o.HTTPListen = a },
			"--admin-listen": func(o *server.Options, a string) { o.AdminListen = a },
			"--raft-listen":  func(o *server.Options, a string) { o.RaftListen = a },

			"--metrics-listen": func(o *server.Options, a string) { o.MetricsListen = a },
		} {
			bad := opts
			set(&bad, taken.Addr().String())
			_, err := server.Start(t.Context(), bad)
			if err == nil {
				t.Fatalf("%s on a port in use: started", flag)
			}
			if text := err.Error(); !strings.HasPrefix(text, flag+" "+taken.Addr().String()) || strings.Contains(text, "\n") {
				t.Errorf("%s: message %q", flag, text)
			}
			set(&bad, "no such host:1")
			if _, err := server.Start(t.Context(), bad); err == nil || !strings.HasPrefix(err.Error(), flag) {
				t.Errorf("%s with a bad address: %v", flag, err)
			}
		}
		n := &servertest.Node{T: t, Opts: opts}
		n.Start()
		n.Append("run", servertest.NewEvent("RunStarted"))
		n.Close()
	})
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, servertest.OnDisk(t), func(o *server.Options) { o.NodeID = "first" })
		n.Append("run", servertest.NewEvent("RunStarted"))
		servertest.WantEqual(t, "node id", n.Server.NodeID(), "first")
		n.Close()
		path := filepath.Join(n.Opts.DataDir, "identity.json")
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var id datadir.Identity
		if err := json.Unmarshal(good, &id); err != nil {
			t.Fatal(err)
		}
		other := func(change func(*datadir.Identity)) string {
			c := id
			change(&c)
			text, err := c.Text()
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
		opts := n.Opts
		opts.Registry = nil
		for what, c := range map[string]struct{ text, mention string }{
			"another cluster": {other(func(i *datadir.Identity) { i.ClusterID = strings.Repeat("ab", 16) }), "cluster"},
			"bad cluster":     {other(func(i *datadir.Identity) { i.ClusterID = "x" }), "clusterId"},
			"another format":  {other(func(i *datadir.Identity) { i.Format = 99 }), "format 99"},
			"another node":    {other(func(i *datadir.Identity) { i.NodeID = "second" }), `belongs to node "second"`},
			"no JSON":         {"{", "identity.json"},
			"empty":           {"", "identity.json"},
		} {
			if err := os.WriteFile(path, []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := server.Start(t.Context(), opts); err == nil || !strings.Contains(err.Error(), c.mention) {
				t.Errorf("%s: %v, want an error about %q", what, err, c.mention)
			}
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if _, err := server.Start(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "identity.json") {
			t.Errorf("a store without identity: %v", err)
		}
		if err := os.WriteFile(path, good, 0o644); err != nil {
			t.Fatal(err)
		}
		n.Opts.NodeID = ""
		n.Opts.Registry = nil
		n.Start()
		servertest.WantEqual(t, "events after all that", len(n.List("run")), 1)
		servertest.WantEqual(t, "snapshot after all that", n.Snapshot("run").Status, runlogv1.RunStatus_RUNNING)
	})
}

// TestAddresses are written once the node serves.
func TestAddresses(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, servertest.OnDisk(t))
		text, err := os.ReadFile(filepath.Join(n.Opts.DataDir, "addresses.json"))
		if err != nil {
			t.Fatal(err)
		}
		var a server.Addresses
		if err := json.Unmarshal(text, &a); err != nil || a != n.Server.Addresses() {
			t.Errorf("addresses.json %s, %v; want %+v", text, err, n.Server.Addresses())
		}
		for _, address := range []string{a.GRPC, a.HTTP, a.Admin, a.Raft} {
			c, err := n.DialTo(n.Context(), address)
			if err != nil {
				t.Error(err)
				continue
			}
			c.Close()
		}
	})
}

// TestLogIsGoneAPP2: a node whose log is missing, such as on a disk that is not mounted, does not
// start with its flushed store: it would have forgotten its votes and what it acknowledged.
func TestLogIsGoneAPP2(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		n := servertest.Start(t, servertest.OnDisk(t))
		n.Append("run", servertest.NewEvent("RunStarted"))
		n.Close()
		if err := os.RemoveAll(filepath.Join(n.Opts.DataDir, "raft")); err != nil {
			t.Fatal(err)
		}
		n.Opts.Registry = nil
		s, err := server.Start(t.Context(), n.Opts)
		if err == nil {
			_ = s.Close()
			t.Fatal("a node without its log starts")
		}
		if !strings.Contains(err.Error(), "its data is gone") {
			t.Error(err)
		}
	})
}

// TestDataDirKilled: a killed process leaves the directories that it made unsynced. The next
// process syncs them before it acknowledges anything (APP-2).
func TestDataDirKilled(t *testing.T) {
	t.Parallel()
	bubble.Test(t, func(t *testing.T) {
		disk := vfs.NewCrashableMem()
		if err := disk.MkdirAll("srv/runlog/node-1", 0o700); err != nil {
			t.Fatal(err)
		}
		d, err := datadir.Open(disk, "srv/runlog/node-1", "node-1")
		if err != nil {
			t.Fatal(err)
		}
		kept := disk.CrashClone(vfs.CrashCloneCfg{})
		if err := d.Release(); err != nil {
			t.Fatal(err)
		}
		after, err := datadir.Open(kept, "srv/runlog/node-1", "")
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(after.Identity(), d.Identity()) {
			t.Errorf("the node was %+v, and is %+v after a loss of power", d.Identity(), after.Identity())
		}
		if err := after.Release(); err != nil {
			t.Error(err)
		}
	})
}
