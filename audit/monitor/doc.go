// Package monitor follows the log of a cluster from outside (TR-5). It trusts public keys, and
// nothing that the cluster says. In each round it verifies that
//
//   - a trusted key, or a later one of its lineage, has signed the newest checkpoint;
//   - the checkpoint continues the last one that it has verified (TR-3);
//   - each record that it is shown since is in the tree of the checkpoint, with all its fields: it
//     computes the leaf from them;
//   - if it is shown all tenants, no record of the tree is left out.
//
// What it has verified is one checkpoint, which its caller keeps in a file ([State]). A checkpoint
// is kept only after the round that verified it. If a later one contradicts it, both notes are in
// the error, for others to see.
//
// It does not verify the root of the heads of runs, which a checkpoint has too. It reads each
// record once: a record that the cluster shows it and hides from others is not found.
//
//	Monitor ─ Next ─┬─ checker  the events of an export, with their places
//	                └─ links    the last record of the runs read last
package monitor
