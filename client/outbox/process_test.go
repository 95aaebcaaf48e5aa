package outbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"runlog/testbed/seed"
)

// asProducer makes the test binary a program that puts into the outbox of its value.
const asProducer = "TEST_OUTBOX_PRODUCER"

func TestMain(m *testing.M) {
	if path := os.Getenv(asProducer); path != "" {
		produce(path)
	}
	os.Exit(m.Run())
}

// produce puts records from several goroutines until the process is killed. It prints the id and
// the number of each that was acknowledged, before its Done if there is one.
func produce(path string) {
	o, err := Open(path, Options{compactBytes: 20_000, MaxBytes: 1 << 30})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("open")
	var lines sync.Mutex
	for c := range 4 {
		go func() {
			for n := c; ; n += 4 {
				id, err := o.Put(context.Background(), request("run", n, n%500))
				if err != nil {
					fmt.Println(err)
					os.Exit(1)
				}
				lines.Lock()
				if n%3 > 0 {
					fmt.Println("done", id, n)
					o.Done(id)
				} else {
					fmt.Println("put", id, n)
				}
				lines.Unlock()
			}
		}()
	}
	select {}
}

// producer starts a producer and returns it with its output, once it has opened the outbox.
func producer(t *testing.T, path string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asProducer+"="+path)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "open" {
		t.Fatalf("the producer says %q", lines.Text())
	}
	return cmd, lines
}

// TestKill kills a process at random moments. Everything that it has seen acknowledged is there,
// except for what it had passed to Done, and each record once.
func TestKill(t *testing.T) {
	t.Parallel()
	rounds := 20
	if testing.Short() {
		rounds = 4
	}
	path := filepath.Join(t.TempDir(), "box")
	want, rng := map[uint64]int{}, seed.Rand(t)
	for range rounds {
		cmd, lines := producer(t, path)
		killed := 20 + rng.IntN(400) // lines; the producer goes on meanwhile
		removed := map[uint64]bool{}
		for n := 0; lines.Scan(); n++ {
			if n == killed {
				_ = cmd.Process.Kill()
			}
			var what string
			var id uint64
			var number int
			if k, _ := fmt.Sscan(lines.Text(), &what, &id, &number); k < 3 {
				continue // The last line may be cut.
			}
			if removed[id] = what == "done"; what == "put" {
				want[id] = number
			}
		}
		_ = cmd.Wait()
		o, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if o.Recovery().IsDamaged() {
			t.Errorf("a killed process left damage: %s", o.Recovery())
		}
		got, _ := contents(t, o)
		for id, n := range want {
			if got[id] == nil || got[id].GetEvents()[0].GetStepId() != "s"+strconv.Itoa(n) {
				t.Errorf("record %d (%d) was acknowledged and is lost", id, n)
			}
		}
		for id := range got {
			if _, known := want[id]; !known {
				o.Done(id) // Its line was not printed, or its Done not written.
			}
		}
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(want) < rounds {
		t.Errorf("only %d records were put", len(want))
	}
}

// TestLocked: an outbox is open once, in one process, also after its file was replaced.
func TestLocked(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "box")
	cmd, lines := producer(t, path)
	for range 500 { // Some files.
		lines.Scan()
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, link} {
		_, err := Open(name, Options{})
		if e, ok := errors.AsType[*LockedError](err); !ok || e.PID != cmd.Process.Pid || !errors.Is(err, ErrLocked) {
			t.Errorf("opened twice: %v", err)
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	o, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(link, Options{}); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "by this process") {
		t.Errorf("opened twice by one process: %v", err)
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	if o, err = Open(link, Options{}); err != nil {
		t.Fatal(err)
	}
	o.Close()
}

// TestOpenNames: Open says what is wrong with a path, and makes no file there.
func TestOpenNames(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "folder")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"":                                "the path is empty",
		folder:                            "it is no regular file",
		filepath.Join(dir, "none", "box"): "its directory cannot be found",
	} {
		if _, err := Open(path, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", path, err)
		}
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Errorf("%v are left, %v", names, err)
	}
}
