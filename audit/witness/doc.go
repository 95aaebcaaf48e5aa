// Package witness is a witness of transparency logs, for auditors to run, and the client of any
// witness (C2SP tlog-witness, TR-4).
//
// A witness keeps one checkpoint of each log: the largest that it has signed. It signs another one
// only if a key that it was given has signed it, and if it is proved that it continues the kept
// one. So of two histories of a log it signs one at most. It trusts no cluster.
//
//	POST /add-checkpoint   "old N", hashes, an empty line, the checkpoint
//	200   the signature lines of the witness
//	409   the size that the witness has: the proof must begin there
//
// A log has the name of a cluster and of an incarnation. The key of a cluster stands for all its
// logs: each is followed for itself.
//
// The kept checkpoints are in a file, which is on stable storage before a signature leaves. One
// process at a time has the file.
package witness
