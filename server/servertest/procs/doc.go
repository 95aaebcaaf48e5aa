// Package procs attacks real runlog processes from outside, and has what their clients saw checked.
//
//	go build ──► nodes: processes, in groups of their own ◄── faults of a plan, drawn from a seed
//	                   ▲          ▲
//	  files and disks ─┘          └─ gRPC ── package workload ── history.Check
//
// The simulator (server/servertest/sim) tries far more histories in a second than processes can, with
// clocks and disks that lie. Here is what it leaves out: the kernel, its sockets, signals and file
// systems, the command with its flags and exit codes, and errors that end a process on a goroutine
// that nobody of ours has begun.
//
// # Faults
//
// TestRounds plays a plan a seed, while clients append, read, watch and ask for windows:
//
//	processes   SIGKILL of one, of two, of all at once, and again while one starts; SIGSTOP of one or two for longer than the
//	            election timeout, then SIGCONT; SIGTERM; a transfer of the leadership. Half of them are about whoever leads.
//	networks    each node in a network namespace of its own, on a bridge: one node cut off both ways, one way (what it sends, or what is sent
//	            to it), from one other alone, or unplugged. What is dropped is dropped by a blackhole route where it is sent, or
//	            by a rule where it arrives. Clients reach every node all the while.
//
// Once all is mended an append must succeed again (I10), all nodes become ready, and the history is
// held to what each of them has (I1 to I8). Every kind happens once before one happens again, and
// is counted (I11). The plan is a function of the seed; what the processes do meanwhile is not, so
// that a seed which has failed may pass.
//
// Other tests do one thing each:
//
//	disks       a full file system, one that has become read-only, a vote and a list of Pebble's files that cannot be written: the node stops
//	            itself with exit code 8 and a last line that says why, the others go on, and it comes back when the disk is mended
//	damage      a bit is flipped in a file of each kind, or the file removed, while the node is down: it refuses to start, or stops itself when it
//	            meets the damage, or has everything all the same; and a node of three is replaced as docs/operations.md tells
//	upgrades    from the version of the last tag to this one, node by node, and back as far as formats let it
//	golden      data directories that earlier versions have written (testdata/golden) are opened, compared and written to
//
// # What it needs
//
// Namespaces and mounts want root, Linux, and the commands ip, mount and mkfs.ext4; tests that lack
// them say so and are skipped. Networks that a killed test has left behind go with the next one
// that is made.
//
// make procs plays many seeds. After a failure the logs of all nodes and the history stay in the
// directory that the test names; -procs.keep keeps their data too.
package procs
