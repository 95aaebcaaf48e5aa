// Package members serves ClusterService: the members of the cluster and how they are, changes of the
// members and of the leadership, and backups of this node's store.
package members
