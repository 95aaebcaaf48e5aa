// Package history records what clients of a cluster saw, and checks it against what the nodes have
// in the end.
//
//	clients ──► Recorder ──► History ──┐
//	                                   ├──► Check ──► Report: violations of I1 to I9
//	nodes, once all is quiet ─► Final… ┘
//	                                   └──► CrossCheck: the same question, asked in another way
//
// It needs no server and no clock of its own: a History may come from a simulator or from processes
// that were killed, and be stored as lines of JSON (Encode, Decode) and checked later. The caller
// says what time it is, in nanoseconds of one clock that all clients share; what the nodes think
// about the time does not matter.
//
// # How it is checked
//
// Whether a history is linearizable is a search through all orders that it may have had, unless the
// order is known. Here it is: the final log of a run is the order in which its appends took effect,
// or there is none. So each operation has a place in it, an append where its records lie, a read
// behind the last record that it saw, and what is left to ask is whether any operation returned
// before another was called that lies at or before it: one pass over the operations in the order of
// time. The rest of the checks compare answers with the log, and logs with each other.
//
// An append whose outcome is unknown may lie in the log, once, or not. A refusal that is definite
// must not. Which attempt wrote a record is told by its key, content and event id; where several
// may have, the check believes the one that suits the cluster best.
//
// CrossCheck asks github.com/anishathalye/porcupine, which searches and does not know the log. It
// is for histories of some dozens of operations a run.
//
// # What the caller owes
//
// Recorder.Call comes before the request leaves, Recorder.Return after the answer has come. What no
// answer came to stays unknown, and so does what ended with a reason that leaves it open (Failed
// tells). Two attempts of one event that differ in content, or that must be told apart, have event
// ids of their own. A Final is taken when the node has applied and folded everything. Runs that
// were imported have gaps, and do not belong here.
package history
