// Package mutants puts known bugs into the sources, and requires that the simulator finds each.
//
//	table ──► Arguments: copies of files, each with a bug
//	             └──► go test -c -overlay ──► a simulator with the bug
//	                                             │ seed after seed
//	                                             ▼
//	          found: the violated invariants, the seed, the processor time
//
// A mutant changes a few places of the product, or of a library that it uses. Only the simulator
// that is built for it contains it. If the simulator does not find a mutant within a minute of
// processor time, the simulator is too weak. It must find nothing in a build without a mutant.
//
// An edit names a package, a function, and a pattern of the syntax tree, as gofmt -r does:
//
//	queue.replace("(queueState) canLease", "r < s.MaxRunning", "r <= s.MaxRunning")
//
// Single letters match whatever is there, so no edit names a local variable. Positions, order and
// formatting do not count. The pattern names as little as tells the place from others in the
// function. It must be found once. If it is not, the error lists what is like it.
//
// Most packages of the product run in the simulator. A mutant of another one, such as the outbox of
// the Go client, names the package and the test that must fail with it: one that compares the
// package with a model of it, and draws its cases.
//
// A mutant names the faults, or the scenarios of package sim, that lead to it. It names no seeds: a
// seed fixes the plan of the faults but not the scheduler, so that a seed which finds a bug on one
// machine may miss it on another. Every run starts from a fresh seed and prints it; -mutants.seed
// repeats the run, and -mutants.runs asks for several.
//
// TestFits makes the edits of all mutants, at every run of the tests. Two tests need the flag
// -mutants, and make mutants runs both. TestApplied compiles the packages that the edits change.
// TestFound lets the simulator look for the mutants. The other tests are about the edits
// themselves, on small sources.
package mutants
