// Package delivery delivers events to subscriptions. The leader does it (ADR 40): for the time of a
// leadership it has a term, with a subscriber for each subscription.
//
//	log ──► tail ──► subscribers of the tenant and type ──► window ──► sink, or consumers
//	  └───► catch-up of one that is behind ───────────────────┘           │
//	  ▲                                                                   ▼
//	  └──── one settlement for all, a few times a second ◄──── acknowledged, parked
//
// One goroutine, the tail, reads what is committed, and hands each event to the subscribers that
// match: a commit costs as much as there are of these. A subscriber whose window is full leaves the
// tail. It reads the log by itself, and comes back when it has caught up.
//
// What is acknowledged becomes durable with the next settlement. When the leadership ends, the next
// leader begins with the cursors in the store: what was acknowledged since the last settlement is
// delivered again (BUS-6), and nothing else.
package delivery
