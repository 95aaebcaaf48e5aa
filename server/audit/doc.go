// Package audit serves AuditService: time windows as pages and as exports, verification of runs,
// and statements that the cluster signs.
//
// A request for a window is parsed. If the window is not known to be closed, the leader closes it
// (READ-4). The answer is read from this node's store. The Signer signs the end of an export and
// the manifest of a backup. It owns the cluster's signing key (server/checkpoint).
//
// Lifecycle: the Signer opens before the service. Service.Close waits for messages in Send; all
// calls must have ended. Signer.Close stops the checkpoint maker.
//
// Invariants:
//
//   - A closed window has one answer, at every node and forever.
//
//   - The cluster signs an export only if its own nodes have counted all of it: from the begin, or
//     from a token with the cluster's signature.
package audit
