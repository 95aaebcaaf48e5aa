package procs

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"runlog/testbed/await"
)

// inSpace calls f in a network namespace.
func inSpace(t *testing.T, space string, f func() error) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(home)
	there, err := unix.Open("/run/netns/"+space, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(there)
	if err := unix.Setns(there, unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	err = f()
	if back := unix.Setns(home, unix.CLONE_NEWNET); back != nil {
		panic(back) // the thread is of no use to others
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestNetworkCuts requires that each kind of fault drops what it should and nothing else, at either
// place where it may, and nothing after it has ended.
func TestNetworkCuts(t *testing.T) {
	t.Parallel()
	if why := WhyNoNetwork(); why != "" {
		t.Skip(why)
	}
	n, ctx := NewNetwork(t, 3), await.Context(t)
	var at [3]*net.UDPConn
	for i := range at {
		inSpace(t, n.space(i), func() (err error) {
			at[i], err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(n.peerIP(i)), Port: 7413})
			return err
		})
		defer at[i].Close()
	}
	// arrive returns the ways that are open, as "01 02 …". Sending may fail if the packet is
	// dropped on the way out.
	seq := 0
	arrive := func() string {
		seq++
		var open []string
		for from := range at {
			for to := range at {
				_, _ = at[from].WriteToUDP(fmt.Appendf(nil, "%d:%d%d", seq, from, to), &net.UDPAddr{IP: net.ParseIP(n.peerIP(to)), Port: 7413})
			}
		}
		// A node's packet to itself comes last, so that the test need not wait. It may be lost too,
		// and is then sent again.
		for to := range at {
			end := func() {
				_, _ = at[to].WriteToUDP(fmt.Appendf(nil, "%d:end", seq), &net.UDPAddr{IP: net.ParseIP(n.peerIP(to)), Port: 7413})
				_ = at[to].SetReadDeadline(time.Now().Add(time.Second))
			}
			end()
			buf := make([]byte, 100)
			for {
				got, _, err := at[to].ReadFromUDP(buf)
				if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil {
					end()
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				round, what, _ := strings.Cut(string(buf[:got]), ":")
				if round == strconv.Itoa(seq) && what == "end" {
					break
				}
				if round == strconv.Itoa(seq) && what[0] != what[1] {
					open = append(open, what)
				}
			}
		}
		slices.Sort(open)
		return strings.Join(open, " ")
	}
	const all = "01 02 10 12 20 21"
	// settle waits: a bridge learns, links come up.
	settle := func(after string) {
		t.Helper()
		await.Poll(t, "all ways open, after "+after, func() bool { return arrive() == all })
	}
	settle("the network was made")
	for _, c := range []struct {
		kind Kind
		want []string // over several seeds
	}{
		{Split, []string{"12 21"}}, {Unplug, []string{"12 21"}}, {Partial, []string{"02 12 20 21"}},
		{OneWay, []string{"01 02 12 21", "10 12 20 21"}},
	} {
		seen := map[string]bool{}
		for seed := range uint64(8) {
			heal := n.cut(Fault{Kind: c.kind, Seed: seed}, 0, 1)
			open := arrive()
			for range 3 { // what comes late comes once more
				if again := arrive(); len(again) > len(open) {
					open = again
				}
			}
			seen[open] = true
			heal()
			settle(string(c.kind))
		}
		if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, c.want) {
			t.Errorf("%s: arrive %q, want %q", c.kind, got, c.want)
		}
	}
}

// TestNetworkIsRemoved requires that nothing is left of a network after its test, nor of the
// network of a killed process.
func TestNetworkIsRemoved(t *testing.T) {
	t.Parallel()
	if why := WhyNoNetwork(); why != "" {
		t.Skip(why)
	}
	left := func(what string) bool {
		spaces, _ := exec.Command("ip", "netns", "list").Output()
		links, _ := exec.Command("ip", "-o", "link").Output()
		return strings.Contains(string(spaces)+string(links), what)
	}
	var id string
	t.Run("a network", func(t *testing.T) { id = NewNetwork(t, 3).id })
	if left(id) {
		t.Errorf("%s is left", id)
	}
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	id = fmt.Sprintf("%d-1", gone.Process.Pid)
	if err := output(exec.Command("ip", "netns", "add", spacePrefix+id+"-0")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", gone.Process.Pid)); err == nil {
		t.Skip("the process id was given to another")
	}
	sweep()
	if left(id) {
		t.Errorf("%s is left", id)
	}
}
