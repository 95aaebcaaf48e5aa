// Package history records what clients of a cluster saw, and checks it against what the nodes have
// in the end.
//
//	clients ──► Recorder ──► History ──┐
//	                                   ├──► Check ──► Report: violations of I1 to I9
//	nodes, once all is quiet ─► Final… ┘
//	                                   └──► CrossCheck: the same question, asked in another way
//
// It needs no server and no clock: a History may come from a simulator or from processes, and may
// be stored as lines of JSON (Encode, Decode) and checked later. The caller provides the time, in
// nanoseconds of one clock that all clients share. The nodes' clocks do not matter.
//
// # How it is checked
//
// In general, a check for linearizability searches all possible orders. Here the order is known: if
// the history is linearizable, the final log of a run is the order in which its appends took
// effect. Each operation has a place in the log: an append at its records, a read after the last
// record that it saw. The check is one pass over the operations in the order of time. It looks for
// an operation that returned before another one was called, although the other lies at or before
// it. The other checks compare answers with the log, and logs with each other.
//
// An append with an unknown outcome may be in the log once, or not at all. A refused one must not
// be there. Key, content and event id show which attempt wrote a record; if several may have, the
// check assumes the one that suits the cluster best.
//
// CrossCheck asks github.com/anishathalye/porcupine, which searches for an order and does not use
// the log. It is for histories of some dozens of operations a run.
//
// CheckRate compares stamps with elapsed time. It is for callers that know when leaders change.
//
// # What the caller must do
//
// The caller calls Recorder.Call before the request leaves, and Recorder.Return after the answer
// has come. A call without an answer stays unknown, and so does one whose reason leaves its effect
// open (Failed decides). Two attempts of one event need different event ids if their content
// differs. The caller takes a Final after the node has applied and folded everything. Imported runs
// have gaps and cannot be checked.
package history
