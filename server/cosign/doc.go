// Package cosign has witnesses sign the checkpoints of a cluster (TR-4). The leader asks, and what
// it is given is stored by a command beside the checkpoint:
//
//	Cosigner ─┬─ asker   of one witness, with a goroutine: a slow one delays no other
//	          │    newest checkpoint in the store ─► witness ─► signature ─► command in the log
//	          └─ report  alerts and metrics of all askers
//
// Only checkpoints in the store are shown to a witness: they are in the logs of a majority, so that
// no cluster that loses nodes within its promise can forget one that a witness has signed. Nothing
// waits for a witness: neither an append nor a checkpoint does.
package cosign
