//go:build unix

package procs

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	runlogv1 "runlog/proto/runlog/v1"
	"runlog/testbed/await"
)

// damage is one way to damage a file of a node that is down.
type damage struct {
	name string
	glob string // below the data directory; of several files, one is drawn
	hurt func(text []byte, rng *rand.Rand) []byte
	// says is part of the last line of a node that does not start, or stops itself. Bars separate
	// alternatives. An empty alternative: the node starts and has everything.
	says string
	// harmless damage may hit bytes without data, or data that is no longer needed.
	harmless bool
	// gone are directories below the data directory that are missing, instead of a file's damage.
	gone []string
}

// flip flips one bit of what was written. A log segment ends in zeros.
func flip(text []byte, rng *rand.Rand) []byte {
	text = bytes.Clone(text)
	text[rng.IntN(len(bytes.TrimRight(text, "\x00")))] ^= 1 << rng.IntN(8)
	return text
}

// remove removes the file.
func remove([]byte, *rand.Rand) []byte { return nil }

// cut cuts off the second half of what was written.
func cut(text []byte, _ *rand.Rand) []byte {
	return bytes.Clone(text[:len(bytes.TrimRight(text, "\x00"))/2])
}

var damages = []damage{
	{"a bit of a table", "store/*/*.sst", flip, "storage: corrupt file", true, nil},
	{"half of a table", "store/*/*.sst", cut, "storage: corrupt file|a file is missing or damaged", false, nil},
	{"a table", "store/*/*.sst", remove, "a file is missing or damaged", false, nil},
	{"a bit of the list of tables", "store/*/MANIFEST-*", flip, "a file is missing or damaged", true, nil},
	// It may name tables that are gone.
	{"half of the list of tables", "store/*/MANIFEST-*", cut, "|a file is missing or damaged", false, nil},
	{"the list of tables", "store/*/MANIFEST-*", remove, "a file is missing or damaged", false, nil},
	{"a bit of the name of the database", "store/CURRENT", flip, "store/CURRENT is damaged", false, nil},
	{"half of the name of the database", "store/CURRENT", cut, "store/CURRENT is damaged", false, nil},
	{"the name of the database", "store/CURRENT", remove, "store/CURRENT is missing", false, nil},
	{"a bit of the log", "raft/wal/*.wal", flip, "raft/wal", true, nil},
	{"half of the log", "raft/wal/*.wal", cut, "raft/wal", false, nil},
	{"the log", "raft/wal/*.wal", remove, "raft/wal", false, nil},
	{"a bit of the list of log files", "raft/wal/meta", flip, "raft/wal/meta is damaged", false, nil},
	{"half of the list of log files", "raft/wal/meta", cut, "raft/wal/meta is damaged", false, nil},
	{"the list of log files", "raft/wal/meta", remove, "raft/wal/meta is missing", false, nil},
	{"a bit of the vote", "raft/vote", flip, "", false, nil},
	{"half of the vote", "raft/vote", cut, "", false, nil},
	{"the vote", "raft/vote", remove, "", false, nil},
	{"a bit of the mark of the log", "raft/commit-mark", flip, "", false, nil},
	{"half of the mark of the log", "raft/commit-mark", cut, "", false, nil},
	{"the mark of the log", "raft/commit-mark", remove, "", false, nil},
	{"a bit of the incarnations", "raft/incarnations", flip, "", false, nil},
	{"half of the incarnations", "raft/incarnations", cut, "", false, nil},
	{"a bit of the node's name", "identity.json", flip, "identity.json is damaged", false, nil},
	{"half of the node's name", "identity.json", cut, "identity.json is damaged", false, nil},
	{"the node's name", "identity.json", remove, "identity.json is missing", false, nil},
	{"the lock", "LOCK", remove, "", false, nil},
	{"half of the lock", "LOCK", cut, "", false, nil},
	{"a bit of a table of snapshots", "projection/*.sst", flip, "", false, nil},
	{"half of a table of snapshots", "projection/*.sst", cut, "", false, nil},
	{"a table of snapshots", "projection/*.sst", remove, "", false, nil},
	{"a bit of the snapshots' list of tables", "projection/MANIFEST-*", flip, "", false, nil},
	{"half of the snapshots' list of tables", "projection/MANIFEST-*", cut, "", false, nil},
	{"the snapshots' list of tables", "projection/MANIFEST-*", remove, "", false, nil},
	{"the log's directory", "", nil, "gone", false, []string{"raft"}},
	{"log and store", "", nil, "gone", false, []string{"raft", "store"}},
	{"all but the identity", "", nil, "gone", false, []string{"raft", "store", "projection"}},
}

// losesNothing reports whether the last line of a node says what to do without losing anything. It
// must not say to empty a directory, which may be the only one with acknowledged events.
func losesNothing(line, dir string, members int) bool {
	remedies := []string{"only voter", "restore the newest backup into another --data-dir"}
	if members > 1 {
		remedies = []string{"if runlog cluster status at another member shows a leader, replace"}
	}
	return strings.Contains(line, "keep "+dir+" as it is") && !strings.Contains(line, "empty") && !strings.Contains(line, "delete") &&
		!slices.ContainsFunc(remedies, func(part string) bool { return !strings.Contains(line, part) })
}

// do damages a file below dir, and returns its name.
func (d *damage) do(t *testing.T, dir string, rng *rand.Rand) string {
	t.Helper()
	if len(d.gone) > 0 {
		for _, name := range d.gone {
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		return strings.Join(d.gone, ", ")
	}
	files, err := filepath.Glob(filepath.Join(dir, d.glob))
	if err != nil || len(files) == 0 {
		t.Fatalf("no %s in %s: %v", d.glob, dir, err)
	}
	file := files[rng.IntN(len(files))]
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text = d.hurt(text, rng); text == nil {
		err = os.Remove(file)
	} else {
		err = os.WriteFile(file, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(file, dir+"/")
}

// saysOne reports whether a line contains one of several parts, which bars separate.
func saysOne(line, parts string) bool {
	return slices.ContainsFunc(strings.Split(parts, "|"), func(part string) bool { return part != "" && strings.Contains(line, part) })
}

// mayStart reports whether a node with the damage may start and have everything.
func (d damage) mayStart() bool { return slices.Contains(strings.Split(d.says, "|"), "") }

// copyDir copies a data directory.
func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if err := output(exec.Command("cp", "-a", from, to)); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedFiles damages or removes one file of a node that is down. The node must not start, or
// stop itself when it reads the damage, and its last line must name the fault; or it has everything
// nevertheless. No node may start with missing or changed records (APP-2, APP-11).
func TestDamagedFiles(t *testing.T) {
	t.Parallel()
	c := newCluster(t, Options{Seed: 1, Nodes: 1})
	c.Work(4)
	c.AwaitAck(100)
	c.rest()
	n := c.Nodes()[0]
	n.Stop()
	whole := n.Dir + ".whole"
	// The spare segment of the log is large. The node makes it again.
	if err := os.Remove(filepath.Join(n.Dir, "raft/wal/spare")); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	copyDir(t, n.Dir, whole)
	for i, d := range damages {
		tries := 1
		if d.harmless {
			tries = 6
		}
		found := false
		for try := range tries {
			copyDir(t, whole, n.Dir)
			file := d.do(t, n.Dir, rand.New(rand.NewPCG(*seedFlag, uint64(100*i+try))))
			last := startDamaged(t, c)
			t.Logf("%s (%s): %s", d.name, file, last)
			if len(d.gone) > 0 { // What the first start makes does not deceive the second.
				last = startDamaged(t, c)
			}
			found = found || last != ""
			switch {
			case last == "" && !d.mayStart() && !d.harmless:
				t.Errorf("%s: the node starts", d.name)
			case last != "" && !saysOne(last, d.says):
				t.Errorf("%s: the node says %q, want %q", d.name, last, d.says)
			case last != "" && !losesNothing(last, n.Dir, 1):
				t.Errorf("%s: the remedy may lose something, or is missing: %q", d.name, last)
			}
			n.Kill()
			if strings.Contains(n.last().said(), "goroutine ") {
				t.Errorf("%s: it said:\n%s", d.name, n.last().said())
			}
		}
		if !found && !d.mayStart() {
			t.Errorf("%s: never found", d.name)
		}
	}
	copyDir(t, whole, n.Dir)
	n.Start()
	t.Log(c.Settle())
}

// TestDamagedMember damages files of one of three nodes, among them those that an only node makes
// again. The member does not start: it could vote twice in a term, or lead without what the others
// have. Its last line says to replace it, and to keep the directory until then (APP-2).
func TestDamagedMember(t *testing.T) {
	t.Parallel()
	c := newCluster(t, Options{Seed: *seedFlag})
	c.Work(4)
	c.AwaitAck(50)
	n := c.Nodes()[1]
	n.Stop()
	whole := n.Dir + ".whole"
	if err := os.Remove(filepath.Join(n.Dir, "raft/wal/spare")); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	copyDir(t, n.Dir, whole)
	for i, d := range damages {
		if !strings.HasPrefix(d.glob, "raft/") || d.harmless {
			continue
		}
		copyDir(t, whole, n.Dir)
		file := d.do(t, n.Dir, rand.New(rand.NewPCG(*seedFlag, uint64(i))))
		n.Start()
		n.ExpectEnd()
		code, last := n.Ended()
		t.Logf("%s (%s): %s", d.name, file, last)
		if named := strings.TrimSuffix(file, filepath.Base(file)); code != exitFailed || !strings.Contains(last, filepath.Join(n.Dir, named)) || !losesNothing(last, n.Dir, 3) {
			t.Errorf("%s: exit code %d, last line %q", d.name, code, last)
		}
	}
	copyDir(t, whole, n.Dir)
	n.Start()
	t.Log(c.Settle())
}

// startDamaged starts the only node of a cluster and reads all its records. It returns the last
// line of a node that has ended, and nothing for one that has everything.
func startDamaged(t *testing.T, c *Cluster) (lastLine string) {
	t.Helper()
	n := c.Nodes()[0]
	n.Start()
	n.ExpectEnd()
	if n.readyOrEnded() {
		ctx, cancel := context.WithCancel(c.ctx)
		defer cancel()
		life := n.last()
		go func() {
			select {
			case <-life.exited:
				cancel()
			case <-ctx.Done():
			}
		}()
		_, err := c.check(ctx)
		if err == nil {
			return ""
		}
		t.Log(err)
	}
	code, lastLine := n.Ended()
	if code != exitFailed {
		t.Errorf("exit code %d, want %d", code, exitFailed)
	}
	return lastLine
}

// TestDamagedNodeIsReplaced destroys the disk of one of three nodes under load. The node stops
// itself, the others go on, and the node is replaced as docs/operations.md describes. No
// acknowledged event may be lost (APP-2).
func TestDamagedNodeIsReplaced(t *testing.T) {
	t.Parallel()
	c := newCluster(t, Options{Seed: *seedFlag})
	c.Work(6)
	c.AwaitAck(50)
	rng := rand.New(rand.NewPCG(*seedFlag, 7))
	victim := c.Nodes()[rng.IntN(3)]
	victim.Stop()
	d := damages[slices.IndexFunc(damages, func(d damage) bool { return d.name == "a bit of a table" })]
	for range 100 { // until there is nothing that is not damaged
		d.do(t, victim.Dir, rng)
	}
	victim.Start()
	victim.ExpectEnd()
	code, last := victim.Ended()
	if code != exitFailed || !saysOne(last, d.says) {
		t.Errorf("exit code %d, last line %q", code, last)
	}
	c.AwaitAck(50)
	victim.Replace()
	// Now another node may be lost: the new one is a voter.
	c.awaitVoters()
	other := c.Nodes()[(slices.Index(c.Nodes(), victim)+1)%3]
	other.Kill()
	c.AwaitAck(50)
	other.Start()
	t.Log(c.Settle())
}

// TestLeaderIsReplaced: under load the leader is removed. Its process stops itself and says why,
// and its data directory cannot join again. An empty one joins under the same name and becomes a
// voter (APP-2, APP-10, READ-2).
func TestLeaderIsReplaced(t *testing.T) {
	t.Parallel()
	c := newCluster(t, Options{Seed: *seedFlag})
	c.Work(6)
	c.AwaitAck(20)
	old := c.Leader()
	old.ExpectEnd()
	old.Remove()
	for range 2 { // By itself, and started again.
		if code, last := old.Ended(); code != exitFailed || !strings.Contains(last, "removed") {
			t.Errorf("exit code %d, last line %q", code, last)
		}
		c.AwaitAck(20)
		old.Start()
		old.ExpectEnd()
	}
	old.Kill()
	old.Rejoin()
	c.awaitVoters()
	t.Log(c.Settle())
}

// awaitVoters waits until all nodes count for a majority.
func (c *Cluster) awaitVoters() {
	c.t.Helper()
	await.Poll(c.t, "a cluster all of whose nodes are voters", func() bool {
		members, _ := c.members()
		voters := 0
		for _, m := range members {
			if m.GetRole() == runlogv1.MemberRole_VOTER && m.GetState() != runlogv1.MemberState_UNREACHABLE {
				voters++
			}
		}
		return voters == len(c.nodes)
	})
}

// members asks the leader for the members of the cluster.
func (c *Cluster) members() ([]*runlogv1.Member, error) {
	conn, err := c.dial("operator", c.index(c.Leader()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	status, err := runlogv1.NewClusterServiceClient(conn).GetStatus(c.ctx, &runlogv1.GetStatusRequest{})
	return status.GetMembers(), err
}
