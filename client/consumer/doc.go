// Package consumer consumes the events of a pull subscription (BUS-8, docs/event-bus.md). It
// reconnects after failures, at any node, and acknowledges in batches.
//
//	err := consumer.Handle(ctx, c, consumer.Options{Subscription: "planner"},
//		func(ctx context.Context, d *consumer.Delivery) error {
//			return plan(ctx, d.GetRunId(), d.GetEventType(), d.GetPayloadJson())
//		})
//
// # Life of a delivery
//
//	server ── credits ──► Delivery ──► Handle's function, or the loop over Deliveries
//	   ▲                                  │
//	   │ at most 512 ids a message        ├─ Ack:  the event is not delivered again
//	   └──────────────────────────────────┴─ Nack: it is, until its attempts are used up
//
// A credit is room for one delivery that is not settled: Options.Credits bound the memory. The
// server hands out an event of a run once the earlier ones are settled (BUS-3), and those of
// different runs side by side.
//
// # At least once
//
// An event may be delivered again: after a failed attempt, after the ackTimeout of the
// subscription, and after a change of the leader or of the connection, also if it was acknowledged
// less than a second before. The eventId is the same each time. A consumer that keeps the highest
// runSeq of each run with its own data recognizes repeats: they are not above it.
package consumer
