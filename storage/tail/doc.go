// Package tail keeps what was committed last, decoded, for all that follow the log: the projector
// and the deliveries to subscriptions. Each entry is read and decoded once, by the first reader
// that comes to it.
//
//	log  …──[ batch ][ batch ][ batch ]──► applied
//	          ▲ After of the first        ▲ To of the last: the next reader behind it reads on
//	          └── a reader behind this reads the store itself (ErrOvertaken)
//
// Invariants:
//
//   - The batches follow each other: Batch.To of one is Batch.After of the next one. Of the entries
//     between the two, a batch has all commits.
//   - A batch never changes. Readers share it and its commits, and change neither.
//   - The batches but the newest one take at most Options.Bytes. The oldest go first, whether or
//     not all readers have had them.
//   - The Tail has no goroutine. While one reader reads the store, those that need the same wait
//     for it; those that need what is here do not.
package tail
