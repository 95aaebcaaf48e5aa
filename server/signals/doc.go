// Package signals implements SignalService: it decides signals to runs (docs/signals.md).
//
//	SendSignal ─► check ─► decided before? ─► limit ─► role ─► table ─► engine ─► policy
//	                              │                      ▲                          │
//	                              │                      └────── read again ◄───────┤
//	                           answer ◄── conditional append of one event ◄─────────┘
//
// A decision is an event of the run: SignalAccepted or SignalRejected. The leader reads the run,
// decides by the table and by what the engine of the run obeys, and appends the event on the
// condition that the run has no other event since it was read. If the run has, the leader reads and
// decides again. So every decision holds at its place in the log (SIG-2). After two tries the other
// appends of the run wait. Also a leader that has lost its leadership cannot store a decision about
// an old state.
//
// Limits are counted in the memory of the leader. A new leader counts from zero.
package signals
