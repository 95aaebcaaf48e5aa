//go:build unix

package procs

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// doctor runs runlog cluster doctor at nodes, and returns its exit code and what it prints.
func (c *Cluster) doctor(at ...*Node) (code int, said string) {
	c.t.Helper()
	var servers []string
	for _, n := range at {
		servers = append(servers, n.grpc)
	}
	var out bytes.Buffer
	cmd := exec.Command(c.opts.Binary, "--server", strings.Join(servers, ","), "cluster", "doctor")
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run() // Its exit code is the answer.
	return cmd.ProcessState.ExitCode(), out.String()
}

// wantDoctor wants the doctor to end with a code, to say some things and not others.
func (c *Cluster) wantDoctor(code int, says, not []string, at ...*Node) {
	c.t.Helper()
	got, said := c.doctor(at...)
	if got != code {
		c.t.Errorf("exit code %d, want %d", got, code)
	}
	for _, s := range says {
		if !strings.Contains(said, s) {
			c.t.Errorf("the doctor does not say %q", s)
		}
	}
	for _, s := range not {
		if strings.Contains(said, s) {
			c.t.Errorf("the doctor says %q", s)
		}
	}
	if c.t.Failed() {
		c.t.Logf("the doctor says:\n%s", said)
	}
}

// TestDoctorOfADeadLeader: the nodes wait so long for their leader that they still believe in it
// when it has been dead for a second. The doctor does not believe in a leader that is paused or
// dead, or whose majority is down.
func TestDoctorOfADeadLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t, Options{Seed: *seedFlag, Flags: []string{"--election-timeout", "10s"}})
	c.wantDoctor(0, []string{"OK       one node leads, and a majority has just confirmed it", "OK       every member answers", "OK       a voter may fail"},
		nil, c.Nodes()...)
	leader := c.Leader()
	var left []*Node
	for _, n := range c.Nodes() {
		if n != leader {
			left = append(left, n)
		}
	}
	unknown := []string{"OK       one node leads", "keeps up\n", "OK       a voter may fail", "OK       every member answers"}

	leader.Pause()
	c.wantDoctor(exitFailed, []string{
		"ERROR    no leader: " + leader.Name + " led last and does not answer",
		"ERROR    " + leader.Name + " does not answer at " + leader.raft + ": no answer within 1s",
	}, unknown, c.Nodes()...)
	leader.Resume()
	c.Ready()

	leader.Kill()
	Pass(time.Second)
	c.wantDoctor(exitFailed, []string{
		"ERROR    no leader: " + leader.Name + " led last and does not answer", "ERROR    " + leader.Name + " does not answer",
		"no alert is raised (not known of " + leader.Name + ")",
	}, unknown, left...)
	left[0].Kill()
	down := []string{
		"ERROR    no leader: 1 of 3 voters answer and 2 are needed; no appends are taken",
		"ERROR    " + left[0].Name + " does not answer", "ERROR    " + leader.Name + " does not answer",
	}
	c.wantDoctor(exitFailed, down, unknown, left[1])
	c.wantDoctor(exitFailed, down, unknown, c.Nodes()...)
}

// TestDoctorOfALowDisk: a node has less free disk than it wants. The doctor says DISK_LOW, and that
// the leader takes no appends; an append is refused with that reason (APP-9).
func TestDoctorOfALowDisk(t *testing.T) {
	t.Parallel()
	c := New(t, Options{Binary: binary(t), Nodes: 1, Keep: *keepFlag, Flags: []string{"--min-free-disk", "1000000TiB"}})
	n := c.Nodes()[0]
	n.Start()
	n.awaitSaid("alert=DISK_LOW")
	c.Leader() // The disk is looked at before the node leads.
	c.wantDoctor(exitFailed, []string{
		"ERROR    n1 raises DISK_LOW and leads: no appends are taken", "less than its --min-free-disk",
	}, []string{"no alert is raised", "every disk has room"}, n)
	n.wantNotReady("--min-free-disk")
}
