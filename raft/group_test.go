package raft

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	hraft "github.com/hashicorp/raft"

	"runlog/testbed/bubble"
)

// group is several nodes in one process, which talk over hashicorp's transport in memory.
type group struct {
	t       *testing.T
	members []*member
	// false progress of the members, for a test
	says atomic.Pointer[func(Member) (Progress, error)]
	// held while a member starts or stops: other goroutines propose meanwhile
	mu sync.Mutex
}

type member struct {
	*bed
	id    hraft.ServerID
	trans *hraft.InmemTransport // nil: stopped
}

// newGroup starts n voters.
func newGroup(t *testing.T, n int, opts Options) *group {
	t.Helper()
	g := &group{t: t}
	var servers []hraft.Server
	for i := range n {
		m := g.newMember(fmt.Sprintf("node-%d", i), opts)
		servers = append(servers, hraft.Server{ID: m.id, Address: hraft.ServerAddress(m.id)})
	}
	for i, m := range g.members {
		m.open()
		if i == 0 {
			err := hraft.BootstrapCluster(m.node.config(nil), m.node.logs, m.node.stable, m.node.snapshots,
				nil, hraft.Configuration{Servers: servers})
			if err != nil {
				t.Fatal(err)
			}
		}
		g.run(m)
	}
	return g
}

func (g *group) newMember(id string, opts Options) *member {
	m := &member{bed: newBed(g.t), id: hraft.ServerID(id)}
	m.opts = opts
	m.opts.AskTerm, m.opts.Ask = g.askTerm, g.ask
	m.opts.ElectionTimeout = 150 * time.Millisecond
	// raft-wal gives entries that were dropped until their segment is full
	m.opts.SegmentBytes = 4 << 10
	g.mu.Lock()
	g.members = append(g.members, m)
	g.mu.Unlock()
	g.t.Cleanup(func() {
		if m.node != nil && m.trans == nil {
			m.shut()
		}
	})
	return m
}

// ask returns another member's progress; a stopped member does not answer.
func (g *group) ask(_ context.Context, m Member) (Progress, error) {
	if says := g.says.Load(); says != nil {
		return (*says)(m)
	}
	return g.progress(m)
}

func (g *group) progress(m Member) (Progress, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, other := range g.members {
		if string(other.id) == m.ID && other.trans != nil {
			return other.node.Progress(), nil
		}
	}
	return Progress{}, errNobody
}

func (g *group) askTerm(ctx context.Context, m Member) (uint64, error) {
	p, err := g.ask(ctx, m)
	return p.Term, err
}

// tryOpen opens the store and the node, which runs only after group.run.
func (m *member) tryOpen() error {
	o := m.prepare(string(m.id))
	o.EnsureDefaults()
	n := newNode(o)
	if err := n.open(); err != nil {
		return errors.Join(err, n.closeFiles(), o.Store.Close())
	}
	m.node, m.store = n, o.Store
	return nil
}

func (m *member) open() {
	m.t.Helper()
	if err := m.tryOpen(); err != nil {
		m.t.Fatalf("%s: %v", m.id, err)
	}
}

// run lets an opened member join the others that run.
func (g *group) run(m *member) {
	g.t.Helper()
	_, trans := hraft.NewInmemTransportWithTimeout(hraft.ServerAddress(m.id), 2*time.Second)
	for _, other := range g.members {
		if other != m && other.trans != nil {
			trans.Connect(other.trans.LocalAddr(), other.trans)
			other.trans.Connect(trans.LocalAddr(), trans)
		}
	}
	if err := m.node.run(covered(trans, m.node)); err != nil {
		g.t.Fatal(err)
	}
	g.mu.Lock()
	m.trans = trans
	g.mu.Unlock()
}

// halt stops a member; with power it also loses unsynced data of its store.
func (g *group) halt(m *member, power bool) {
	g.t.Helper()
	for _, other := range g.members {
		if other != m && other.trans != nil {
			other.trans.Disconnect(m.trans.LocalAddr())
		}
	}
	g.mu.Lock()
	m.trans = nil
	g.mu.Unlock()
	if power {
		m.crash()
	} else {
		m.stop()
	}
}

// shut closes a member that was opened and does not run, as a loss of power would.
func (m *member) shut() {
	m.t.Helper()
	kept := m.disk.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{})
	if err := errors.Join(m.node.closeFiles(), m.store.Close()); err != nil {
		m.t.Fatal(err)
	}
	m.node, m.store, m.disk = nil, nil, kept
}

// leader waits until a member leads.
func (g *group) leader() *member {
	g.t.Helper()
	for began := time.Now(); time.Since(began) < bubble.Limit; time.Sleep(time.Millisecond) {
		if m := g.leading(); m != nil {
			return m
		}
	}
	for _, m := range g.members {
		g.t.Logf("%s: failures %v", m.id, m.failures())
	}
	g.t.Fatal("nobody leads")
	return nil
}

func (g *group) leading() *member {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range g.members {
		if m.trans != nil && m.node.Leading() {
			return m
		}
	}
	return nil
}

// follower is a member that runs and does not lead.
func (g *group) follower() *member {
	g.t.Helper()
	leader := g.leader()
	for _, m := range g.members {
		if m.trans != nil && m != leader {
			return m
		}
	}
	g.t.Fatal("nobody follows")
	return nil
}

// append appends events to a run, one a proposal, at any leader. Each takes a moment: without it,
// a load would use no fake time, and nothing else would happen meanwhile.
func (g *group) append(run string, first, n int) error {
	for i := range n {
		for began := time.Now(); ; {
			f, err := propose(g.leader().node, seal(g.t, request(run, first+i, 1)))
			if err == nil {
				err = (<-f).err
			}
			time.Sleep(time.Millisecond)
			if err == nil {
				break
			}
			if time.Since(began) > bubble.Limit {
				return fmt.Errorf("event %d: %w", first+i, err)
			}
		}
	}
	return nil
}

func (g *group) fill(run string, first, n int) {
	g.t.Helper()
	if err := g.append(run, first, n); err != nil {
		g.t.Fatal(err)
	}
}

// leaveBehind appends n events, and drops them from the log of all members that run.
func (g *group) leaveBehind(run string, first, n int) {
	g.t.Helper()
	g.fill(run, first, n)
	g.settle()
	for _, m := range g.members {
		if m.trans == nil {
			continue
		}
		if err := m.node.Truncate(); err != nil {
			g.t.Fatalf("%s: %v", m.id, err)
		}
	}
}

// nextTerm restarts the leader, which forces an election.
func (g *group) nextTerm() {
	g.t.Helper()
	leader := g.leader()
	before := leader.node.raft.CurrentTerm()
	g.halt(leader, false)
	leader.open()
	g.run(leader)
	if now := g.leader().node.raft.CurrentTerm(); now <= before {
		g.t.Fatalf("in term %d after %d", now, before)
	}
}

// settle waits until all members that run have applied the same.
func (g *group) settle() {
	g.t.Helper()
	ctx, want := soon(g.t), g.leader().store.Applied()
	for _, m := range g.members {
		if m.trans == nil {
			continue
		}
		if err := m.store.Wait(ctx, want.Position()-1); err != nil {
			g.t.Fatalf("%s is at %+v, the leader at %+v: %v; failures %v", m.id, m.store.Applied(), want, err, m.failures())
		}
	}
}

// expectEqual stops all members, and checks that their stores are equal, byte for byte, with n
// events.
func (g *group) expectEqual(events int) {
	g.t.Helper()
	g.settle()
	leader := g.leader()
	want := leader.store.Applied()
	if want.Events != uint64(events) {
		g.t.Errorf("%d events, want %d", want.Events, events)
	}
	for _, m := range g.members {
		if len(m.failures()) > 0 {
			g.t.Errorf("%s: %v", m.id, m.failures())
		}
		if got := m.store.Applied(); got != want {
			g.t.Fatalf("%s is at %+v, the leader at %+v", m.id, got, want)
		}
	}
	for _, m := range g.members {
		g.halt(m, false)
	}
	rows := dump(g.t, leader.disk)
	for _, m := range g.members {
		if !bytes.Equal(dump(g.t, m.disk), rows) {
			g.t.Errorf("the store of %s is another than the leader's", m.id)
		}
	}
}

type quiet struct{}

func (quiet) Infof(string, ...any)              {}
func (quiet) Errorf(string, ...any)             {}
func (quiet) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

var databaseRE = regexp.MustCompile(`^[0-9]+$`)

// dump returns the whole key space of the only database of a closed store.
func dump(t *testing.T, disk vfs.FS) (rows []byte) {
	t.Helper()
	names, err := disk.List("store")
	if err != nil || len(names) != 2 {
		t.Fatalf("in the store's directory: %q, %v", names, err)
	}
	if !databaseRE.MatchString(names[0]) {
		names[0] = names[1]
	}
	db, err := pebble.Open(disk.PathJoin("store", names[0]), &pebble.Options{FS: disk, ReadOnly: true, Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	it, err := db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for it.First(); it.Valid(); it.Next() {
		rows = fmt.Appendf(rows, "%x=%x\n", it.Key(), it.Value())
	}
	if err := errors.Join(it.Close(), db.Close()); err != nil {
		t.Fatal(err)
	}
	if len(rows) == 0 {
		t.Fatal("an empty store")
	}
	return rows
}

// newestOf returns the snapshot that a leader would send now.
func newestOf(t *testing.T, m *member) (*hraft.SnapshotMeta, *outgoing) {
	t.Helper()
	list, err := m.node.snapshots.List()
	if err != nil || len(list) == 0 {
		t.Fatalf("%d snapshots, %v", len(list), err)
	}
	meta, r, err := m.node.snapshots.Open(list[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	return meta, r.(*outgoing)
}
