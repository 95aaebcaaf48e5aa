// Package batch is group commit: it folds the commands that queued up while proposals were under way
// into the next one (D1).
//
//	Submit ──► queue, bounded in bytes ──► one goroutine builds and proposes ──► Raft
//	  ▲                                                                           │
//	  └───────────── one goroutine waits for answers, in order ◄──────────────────┘
//
// Invariants: commands are proposed in the order in which they were admitted; a command is refused before
// it is queued or not at all (APP-9); every admitted command is answered once.
package batch
