// Package events serves EventService: appends, alone, in batches and as streams, and reads of a
// run's events.
//
// An append is parsed once (proto/contract), admitted and waited for (server/replica), and answered
// in the request's order. On a node that does not lead, the chain forwards AppendEvents; BatchAppend
// asks the leader request by request; AppendStream keeps a stream of its own to the leader.
package events
