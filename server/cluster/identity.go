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

// Format is the version of what nodes say to each other, and of their data.
const Format = 3

// Identity is what a node keeps of itself, in its data directory.
type Identity struct {
	// NodeID is the name that people use.
	NodeID string `json:"nodeId"`
	// Disk is the number of the data directory, made with it.
	Disk string `json:"disk"`
	// ClusterID in hexadecimal; empty: the node belongs to no cluster yet.
	ClusterID string `json:"clusterId,omitempty"`
	// Founders of the cluster, at the one that founds it.
	Founders []raft.Member `json:"founders,omitempty"`
	// Founding says that the node was a voter of its cluster from the beginning, and needs no state
	// from others.
	Founding bool `json:"founding,omitempty"`
	// Via are addresses at which the cluster was found.
	Via []string `json:"via,omitempty"`
	// Started says that the node has taken part in Raft: from then on its data must be there.
	Started bool `json:"started,omitempty"`
	// Member says that the node has been a member.
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

// NewCluster returns that of a new data directory whose store is the first of a new cluster, which
// has no other member. The store says who belongs to it; nothing is to be founded.
func NewCluster(nodeID string) Identity {
	i := NewIdentity(nodeID)
	i.ClusterID, i.Member = randomHex(16), true
	return i
}

// RaftID is what the node is called in Raft.
func (i *Identity) RaftID() string { return i.NodeID + "." + i.Disk }

// NodeIDOf returns the name in what a node is called in Raft.
func NodeIDOf(raftID string) string {
	if dot := strings.LastIndexByte(raftID, '.'); dot >= 0 {
		return raftID[:dot]
	}
	return raftID
}

// Cluster returns the cluster that the node belongs to; zero: none.
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

// Validate reports what no node can be.
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

// NodeIDFault says what is wrong with the name of a node; empty: nothing.
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
