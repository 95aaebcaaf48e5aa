// Package procs attacks runlog processes from outside, and checks what their clients saw.
//
//	go build ──► nodes: processes, in groups of their own ◄── faults of a plan, drawn from a seed
//	                   ▲          ▲
//	  files and disks ─┘          └─ gRPC ── package workload ── history.Check
//
// The simulator (server/servertest/sim) runs far more histories in a second than processes can,
// with disks and clocks that fail. This package covers what the simulator leaves out: the kernel,
// its sockets, signals and file systems; the command with its flags and exit codes; and errors that
// end a process on a library's goroutine.
//
// # Faults
//
// TestRounds plays one plan a seed, while clients append, read, watch and query windows:
//
//	processes   SIGKILL of one, of two, of all at once, and again during a start;
//	            SIGSTOP of one or two for longer than the election timeout, then SIGCONT;
//	            SIGTERM; a transfer of the leadership. Half of these hit the leader.
//	networks    Each node is in a network namespace of its own, on a bridge. One node is
//	            cut off both ways, one way (what it sends, or what is sent to it), from
//	            one other node alone, or unplugged. A blackhole route drops packets at the
//	            sender, or a rule at the receiver. Clients reach every node meanwhile.
//
// After all faults have ended, an append must succeed again (I10), all nodes must become ready, and
// the history is checked against the records of each (I1 to I8). Every kind happens once before one
// happens again, and is counted (I11). A plan is a function of its seed; the timing of processes is
// not. A seed that has failed may pass.
//
// Other tests do one thing each:
//
//	disks       The disk is full or read-only, or a vote or a list of Pebble's files cannot
//	            be written. The node stops itself with exit code 8, and its last line names
//	            the fault. The others continue, and the node comes back on a repaired disk.
//	damage      A bit is flipped in a file of each kind, or the file is removed, while the
//	            node is down. The node does not start, or stops itself when it reads the
//	            damage, or has everything nevertheless. A node of three is replaced as
//	            docs/operations.md describes.
//	upgrades    From the version of the last tag to this one, node by node, and back as far
//	            as the formats allow. To a successor of this one with a higher feature level:
//	            the level rises after the last node, and the way back ends there.
//	start       Mistakes of an operator: a name or a cluster that is not the node's, too many
//	            founders, wrong certificates, too few nodes.
//	backup      Nodes are backed up under load. A node is restored, two nodes join it, and the
//	            cluster continues.
//	engines     An engine that uses the product's client with an outbox is killed and paused, and
//	            so is its node. What it reported as stored or parked is in the log once, in order.
//	sinks       A webhook and NATS JetStream, processes too, are killed and paused, and so is the
//	            leader while it delivers. Each has every event that matches, or it is parked; the
//	            events of a run came in order, and repeats have a cause.
//	golden      This version opens data directories of earlier ones (testdata/golden),
//	            compares them and writes to them.
//
// # Waiting
//
// A test waits for events: a line of a process (await.Words), its end, its health over gRPC, an
// append. Where a process tells of nothing, await.Poll asks. Pass alone lets real time pass. The
// only limit is that of the test binary. Nodes keep their addresses over restarts (Reserve).
//
// # Requirements
//
// Namespaces and mounts need root, Linux, and the commands ip, mount and mkfs.ext4. Tests that lack
// them are skipped and say why. The next network that is made removes those that a killed test has
// left behind.
//
// make procs plays many seeds. After a failure, the logs of all nodes and the history stay in the
// directory that the test prints; -procs.keep keeps the nodes' data too.
package procs
