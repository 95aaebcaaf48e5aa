// Package clienttest starts a real runlog server inside a test, for authors of engines and
// adapters. The server is the one of cmd/runlog, with the same rules, errors and watches. Only its
// disk, which is in memory, and its clock are simulated, and the network and all time if the test
// wants so. A test breaks what lies between the client and the server, and sees whether its code
// copes.
//
//	func TestMyEngine(t *testing.T) {
//		srv := clienttest.Start(t)
//		c := srv.Client(client.Options{})
//		srv.LoseAnswers(1) // the next append is stored, and its answer is lost
//		runMyEngine(t, c)
//		// ... read the run, and compare
//	}
//
// # Fake time
//
// A test with InBubble runs in a bubble of package testing/synctest: an hour passes at once if
// nothing else is to do, and no test fails because a machine is busy. Package runlog/testbed/bubble
// starts the bubble, and waits in it.
//
//	func TestMyEngine(t *testing.T) {
//		bubble.Test(t, func(t *testing.T) {
//			srv := clienttest.Start(t, clienttest.InBubble())
//			...
//			time.Sleep(time.Hour)
//		})
//	}
//
// The clients of such a server are those of Client, or have its DialOptions: no other process
// reaches it. On takes a network that the test has made, to cut and slow it. Code that uses the
// network of the system in a bubble stops its time.
//
// # The path
//
//	client ── Addr ──► path ── loopback ──► node: server, disk in memory, clock
//	                    │ faults                │ Raft, with Nodes(3)
//	                    ▼                       ▼
//	      refuse, send twice, delay,      StepDown, Down, Up,
//	          lose the answer             Restart, StepClock
//
// Addr is the address of the path, which forwards every call. Each write is treated as the
// faults say: AppendEvents, CreateRun, and each message of an AppendStream. Other calls pass. The
// faults of a server apply at all of its nodes. One write has at most these faults, in this order:
//
//  1. Refuse answers in place of the server, and nothing is stored.
//  2. DuplicateRequests sends the write twice. The client gets the second answer.
//  3. Delay holds the answer back.
//  4. LoseAnswers closes the connection in place of the answer.
//
// # Loss of power
//
// Down ends nodes as a loss of power does: connections break, calls in flight have no outcome, and
// what was not synced is gone. An acknowledged event is synced (APP-2). Up starts the nodes again,
// at the same address.
//
// # Lifecycle
//
// Start returns once the server takes writes, which takes milliseconds with one node. The server
// ends with the test. Tests may run in parallel, each with a server of its own. Methods may be
// called from any goroutine, except those that may end the test and belong to its own: Start,
// Client, Up, Restart, Leader, StepDown and Refuse.
package clienttest
