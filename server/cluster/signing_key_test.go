package cluster

import (
	"testing"

	nodev1 "runlog/proto/node/v1"
)

// TestSigningKeyIsForMembers: a node that is no member yet may be given the cluster's state, and not its key, nor give one.
func TestSigningKeyIsForMembers(t *testing.T) {
	if open[nodev1.NodeService_FetchSigningKey_FullMethodName] || open[nodev1.NodeService_KeepSigningKey_FullMethodName] || !open[nodev1.NodeService_OpenCheckpoint_FullMethodName] {
		t.Error("whoever connects may call FetchSigningKey or KeepSigningKey")
	}
}
