// Package outbox keeps appends that an engine could not send in time in one local file, until the
// server has stored them (client/writer).
//
//	o, err := outbox.Open("/var/lib/engine/runlog.outbox", outbox.Options{})
//	defer o.Close()
//	id, err := o.Put(ctx, req) // on stable storage once it returns
//
//	for range o.Ready() {
//		err := o.Drain(ctx, 8, send) // in order per run; see Drain for what send returns
//	}
//
// # Life of a record
//
//	Put ──▶ pending ──▶ Done, as the server has stored it ──▶ removed
//	           │
//	           └──▶ Reject, as it is refused for good ──▶ rejected ──▶ Discard ──▶ removed
//
// A Put returns after an fsync, which concurrent Puts share. Done and Reject are lazy: a crash may
// undo them. The record is then sent again, and the server recognises it by the idempotency keys of
// its events (IDM-1). So a caller names the keys, or everything that they are derived from, and the
// event ids before it calls Put.
//
// # The file
//
//	header │ frame frame frame …    one goroutine appends
//
// A frame has a checksum, and no zero byte between its first and its last. So after damage at any
// place, the next frame is found again, and no payload can look like a frame. docs/formats.md has
// the bytes. When more than half of the file is dead, the live records are written to a new file,
// which replaces the old one.
//
// Invariants:
//
//   - One process at a time has the file open for writing: it holds a lock on FILE.lock, which
//     survives the replacement of the file.
//   - Records keep the order of their Puts; their ids rise, and are not used again.
//   - After a failed fsync, nothing is acknowledged until all live records are in a new, synced
//     file.
//   - Damage costs the records that it hits, and no others. The damaged file is copied before it is
//     replaced, and Recovery says what was lost.
package outbox
