// Package witness lets the members of a group notice a node whose directory was put back from an
// older copy (D3): such a node has forgotten entries that it has acknowledged, its term, or a vote.
//
//	each start of a directory ──► a new incarnation, durable before the node asks anybody
//	answers, requests, votes  ──► Memory of each other member, durable every few seconds
//	Greeting ──► Hear ──► Answer ──► Judge: the greeting node compares, and stops itself
//
// A greeting node judges itself: it reads its own log after it has got the answer. Everything that
// another member remembers of it was on its stable storage before that. So no delay of a message
// can make a good directory look old.
//
// Invariants:
//
//   - An incarnation is on stable storage before it is sent to another member.
//   - A log that another leader has shortened names that leader's term before it is shortened.
//   - A memory that lags, or is lost, makes members notice less. It never accuses a good directory.
package witness
