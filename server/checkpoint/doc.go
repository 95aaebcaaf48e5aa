// Package checkpoint is how a cluster vouches for what it has recorded: the key with which it signs, the
// tree over the heads of all runs, and the checkpoints that it makes of the tree's root.
// docs/audit.md tells what an auditor does with them.
//
//	Sealer ─┬─ keyring   the key: made by the leader, told in the log, fetched from other members
//	        ├─ Tree      hashes of groups of runs and upwards, brought up to date from a storage.Heads
//	        └─ newest    the last checkpoint made here, with what it was made of: proofs come from there
//
// A public key and a checkpoint are commands in the log, which every node applies. The private key
// is in none of them: it lies in a file of each node, and goes from one member to another.
package checkpoint
