// Package subscriptions serves SubscriptionService: it makes, changes and shows subscriptions, and
// passes the events of pull subscriptions to consumers (docs/event-bus.md). The state machine
// (storage/machine/subscription) keeps settings, cursors and dead letters; package delivery
// delivers on the leader.
//
//	Create, Update, … ──► an operation of the machine ──► delivery takes the change over
//	Consume, Pull ──────► delivery.Consumer ──► events out, acknowledgements in
//
// A change of a subscription that has deliveries under way first records what was acknowledged, so
// that it is not repeated.
package subscriptions
