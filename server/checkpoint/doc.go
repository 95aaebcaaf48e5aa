// Package checkpoint signs a cluster's records: the signing key, the Merkle tree over the heads of
// all runs, and the signed checkpoints. A checkpoint has the root of this tree, and that of the
// tree of all records, which the projector keeps (TR-2). docs/audit.md explains their use by an
// auditor.
//
//	Maker ─┬─ keyring   the key: made by the leader, named in the log, fetched from other members
//	       ├─ Tree      hashes of groups of runs and upwards, updated from a storage.Heads
//	       └─ newest    the last checkpoint made here and its input, for proofs
//
// A public key and a checkpoint are commands in the log, which every node applies. The private key
// is never in the log: each node keeps it in a file, and members send it to each other.
package checkpoint
