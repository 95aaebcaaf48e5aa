// Package watch publishes changed runs to subscriptions, inside one node. A [Subscription] follows
// one run (WATCH-1). A [RunsSubscription] follows the runs that a filter selects (WATCH-2).
//
//	projector ── Publish ──▶ Hub ──┬─ by run ─────▶ Subscription: the newest snapshot
//	                               └─ by tenant ──▶ RunsSubscription: changes, bounded
//	storage ── log ── catch-up ──────────────────▶ RunsSubscription that is behind
//
// The projector calls Publish after each round of folding. A Hub finds the subscriptions that a
// change concerns, so that a change costs in proportion to those only. It counts all subscriptions
// against one limit; beyond it, a new one gets [ErrTooManyWatchers].
//
// Invariants:
//
//   - Publish waits for no reader (WATCH-3).
//   - A slow reader of one run sees the newest snapshot and none of those between (conflation).
//   - A reader of many runs that is too far behind reads the log instead of memory. The number of
//     such catch-ups at a time is bounded.
package watch
