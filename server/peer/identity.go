package peer

import (
	"fmt"
	"net"
	"strings"

	"runlog/storage"
)

// Kind is the purpose of a connection.
type Kind byte

const (
	// KindRaft is a stream of Raft's own messages.
	KindRaft Kind = 'r'
	// KindNode is gRPC between nodes.
	KindNode Kind = 'n'
)

// String names the kind in logs and metrics.
func (k Kind) String() string {
	switch k {
	case KindRaft:
		return "raft"
	case KindNode:
		return "node"
	}
	return fmt.Sprintf("kind %d", byte(k))
}

func (k Kind) known() bool { return k == KindRaft || k == KindNode }

// Identity is a node's greeting on every connection.
type Identity struct {
	// NodeID is the node's name, as in its certificate; 1 to 200 bytes.
	NodeID string
	// RaftID is NodeID, a dot and the number of its data directory; at most 255 bytes.
	RaftID string
	// Cluster of the node; zero: none yet.
	Cluster storage.ClusterID
	// Format is the version of messages and data; nodes of different formats refuse each other.
	Format uint32
	// Version is the build, for people; at most 255 bytes.
	Version string
}

// validate reports impossible names.
func (i Identity) validate() error {
	number, named := strings.CutPrefix(i.RaftID, i.NodeID+".")
	switch {
	case i.NodeID == "" || len(i.NodeID) > maxNodeID || !plain(i.NodeID):
		return fmt.Errorf("the node's name %q is not 1 to %d printable bytes", clip(i.NodeID, maxNodeID), maxNodeID)
	case len(i.RaftID) > maxField || !plain(i.RaftID) || !named || number == "" || strings.Contains(number, "."):
		return fmt.Errorf("the Raft name %q is not %q, a dot and the number of a data directory", clip(i.RaftID, maxField), i.NodeID)
	case len(i.Version) > maxField || !plain(i.Version):
		return fmt.Errorf("the build %q is not at most %d printable bytes", clip(i.Version, maxField), maxField)
	}
	return nil
}

// Conn is a connection that passed the handshake. Reads and writes are those of the TCP or TLS
// connection beneath.
type Conn struct {
	net.Conn
	kind  Kind
	other Identity
}

// Kind returns the purpose of the connection.
func (c *Conn) Kind() Kind { return c.kind }

// Identity returns the other end's greeting, which matches its certificate, if there is one.
func (c *Conn) Identity() Identity { return c.other }
