// Package audit serves AuditService: windows over persistedAt as pages and as exports, verification
// of runs, and what the cluster signs.
//
// A window is parsed, closed by the leader where it has to be (READ-4), and read from this node's
// store. The end of an export and the manifest of a backup are signed by the Signer, which looks
// after the cluster's key (server/checkpoint).
//
// Signer.Close ends the checkpoints. Service.Close comes after the calls have ended.
package audit
