// Package kafka produces events to a topic of Kafka, as CloudEvents in structured mode (BUS-7).
//
// The key of a record is the runId, so the events of a run are in one partition, in their order.
// The producer is idempotent and waits for all in-sync replicas. It never creates a topic.
//
//	Send ─► producer, batches ─► taken
//	            │ too large: the record, or its batch
//	            ▼
//	        producer of single records ─► taken, or too large: *attempt.PermanentError
//
// A broker refuses a batch that is too large as a whole, and does not say why. So a record of such
// a batch is sent again as a batch of its own, which shows whether the record is too large.
//
// A record whose outcome is unknown stays in the producer after its attempt has ended, until a
// broker answers: it may be stored besides the record of the next attempt, and before it. The
// number of records in a producer is bounded.
package kafka
