// Package events serves EventService: appends of one request, of batches and as streams, and reads
// of a run's events.
//
// An append is parsed once (proto/contract), admitted and awaited (server/replica), and answered in
// the order of its requests. On a follower, the chain forwards AppendEvents to the leader;
// BatchAppend forwards each of its requests; AppendStream opens a stream of its own to the leader.
//
// New makes the service. It has nothing to close: streams end with Options.Stopping.
//
// Invariants:
//
//   - Requests of one stream, and requests of one run in a batch, are applied in their order.
//
//   - A stopping node answers every request of a stream that it has admitted.
package events
