// Package delivery delivers events to subscriptions. The leader does it (ADR 40): for the time of a
// leadership it has a term, with a subscriber for each subscription (ADR 51).
//
//	log ──► storage/tail ◄── reads ── owner of a subscription ──► window ──► sink, or consumers
//	             │                       ▲         ▲                             │
//	             ▼                 wakes │         └── mailbox ◄─────────────────┤
//	          router ────────────────────┘                                       │
//	  ▲                                                                          ▼
//	  └──── one settlement for all, a few times a second ◄──── acknowledged, parked
//
// The router looks at what is committed and wakes the subscriptions that it may concern. It hands
// nothing over: a commit costs as much as there are of these. A subscription that is awake has one
// owner, a goroutine, which reads the tail, or the store where it is behind. Everything else that
// happens to the subscription is mail for the owner: changes of its row, calls of consumers,
// answers of the sink, settlements. A subscription with nothing to do has no goroutine.
//
// What is acknowledged becomes durable with the next settlement. When the leadership ends, the next
// leader begins with the cursors in the store: what was acknowledged since the last settlement is
// delivered again (BUS-6), and nothing else.
//
// Locks. Dispatcher.mu has the term. term.mu has what the router, the owners and the settlements
// share. mailbox.mu has the mail of one subscription and whether it has an owner. No other lock is
// taken, and no goroutine waits, while one of them is held: they have no order.
package delivery
