// Package members serves ClusterService: the members of the cluster and their state, membership
// changes, leadership transfers, and backups of this node's store.
//
// New makes the service. Close waits for messages in Send; all calls must have ended.
//
// Invariants:
//
//   - A node makes at most MaxBackups backups at a time, because each holds a checkpoint.
//
//   - The memory of one backup is bounded: pieces are reused, and a slow reader ends it.
package members
