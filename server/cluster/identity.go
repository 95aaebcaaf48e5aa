package cluster

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"runlog/raft"
	"runlog/storage"
)

// Format is the version of the messages between nodes, and of the log that they share. Nodes of
// different formats refuse each other. It rises with each change of the stored messages, or of what
// apply makes of them, that no feature level keeps out of the log.
const Format = 7

// Identity is a node's record of itself, in its data directory.
type Identity struct {
	// NodeID is the name that people use.
	NodeID string `json:"nodeId"`
	// Disk is the number of the data directory, made with it.
	Disk string `json:"disk"`
	// ClusterID in hexadecimal; empty: the node belongs to no cluster yet.
	ClusterID string `json:"clusterId,omitempty"`
	// Founders of the cluster; set on the founding node.
	Founders []raft.Member `json:"founders,omitempty"`
	// Founding: the node was a voter of its cluster from the beginning, and needs no state
	// transfer.
	Founding bool `json:"founding,omitempty"`
	// Via are addresses at which the cluster was found.
	Via []string `json:"via,omitempty"`
	// Started: the node has taken part in Raft. From then on its data must exist.
	Started bool `json:"started,omitempty"`
	// Member: the node has been a member.
	Member bool `json:"member,omitempty"`
}

// NewIdentity returns that of a new data directory. An empty name is made up.
func NewIdentity(nodeID string) Identity {
	disk := randomHex(4)
	if nodeID == "" {
		nodeID = "node-" + disk
	}
	return Identity{NodeID: nodeID, Disk: disk}
}

// NewCluster returns the identity of a new data directory whose store is the first of a new
// cluster, with this node as the only member. The store has the membership; there is nothing to
// found.
func NewCluster(nodeID string) Identity {
	i := NewIdentity(nodeID)
	i.ClusterID, i.Member = randomHex(16), true
	return i
}

// RaftID is the node's name in Raft.
func (i *Identity) RaftID() string { return i.NodeID + "." + i.Disk }

// NodeIDOf returns the node name in a Raft ID.
func NodeIDOf(raftID string) string {
	if dot := strings.LastIndexByte(raftID, '.'); dot >= 0 {
		return raftID[:dot]
	}
	return raftID
}

// Cluster returns the node's cluster; zero: none.
func (i *Identity) Cluster() (storage.ClusterID, error) {
	if i.ClusterID == "" {
		return storage.ClusterID{}, nil
	}
	id, err := hex.DecodeString(i.ClusterID)
	if err != nil || len(id) != len(storage.ClusterID{}) {
		return storage.ClusterID{}, fmt.Errorf("bad clusterId %q", i.ClusterID)
	}
	return storage.ClusterID(id), nil
}

// Validate reports an impossible identity.
func (i *Identity) Validate() error {
	if fault := NodeIDFault(i.NodeID); fault != "" {
		return fmt.Errorf("node id %q %s", i.NodeID, fault)
	}
	if i.Disk == "" {
		return errors.New("has no number of the data directory")
	}
	_, err := i.Cluster()
	return err
}

// maxNodeID is room for a host's name.
const maxNodeID = 63

// NodeIDFault returns the fault of a node name; empty: none.
func NodeIDFault(id string) string {
	if id == "" || len(id) > maxNodeID {
		return fmt.Sprintf("is not 1 to %d characters long", maxNodeID)
	}
	for _, c := range id {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.", c) {
			return "has other characters than letters, digits, '-', '_' and '.'"
		}
	}
	return ""
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
