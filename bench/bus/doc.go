// Package bus has the receivers and the consumers of the workloads about subscriptions: a webhook's
// endpoint, sinks that are counted by what has arrived, and consumers beside appends.
//
//	Sinks   stored events ─► subscription ─► Receiver, counted there
//	Lag     appends ─► one consumer: now − persistedAt of each event
//	Crowd   appends ─► idle and busy subscriptions
//	Dead    appends ─► a webhook that refuses connections
//
// Lag, Crowd and Dead are opened before the appends are measured. Their Close ends every goroutine
// and deletes the subscriptions.
package bus
