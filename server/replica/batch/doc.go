// Package batch is group commit: it gathers the commands that queued up while proposals were under
// way into the next one (D1).
//
//	Enqueue ──► queue, bounded in bytes ──► proposed by the caller when nothing is under way,
//	   ▲                                    else by one goroutine: when the proposal before is
//	   │                                    answered, or when the next is full
//	   └── Ticket.Wait ◄── Raft answers ◄────────────┘
//
// Invariants: the commands of a line are proposed in the order in which they were admitted, and
// lines take turns (SEC-6); a command is refused before it is queued or not at all (APP-9); every
// admitted command is answered once.
package batch
