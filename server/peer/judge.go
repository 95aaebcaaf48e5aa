package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"

	"runlog/storage"
)

// judge compares the two ends of a connection, the same way at both. certified is the name in the
// other end's certificate, empty without TLS; wanted is the Raft name that the dialling end asked
// for, and answering that of the end that answered.
func (m *Mesh) judge(kind Kind, self, other Identity, certified *string, wanted, answering string) *RefusedError {
	switch {
	case certified != nil && *certified != other.NodeID:
		return refuse(IdentityMismatch, "node %s shows the certificate of node %s; give it one of its own, "+
			"or start it under the name that its certificate has", other.NodeID, *certified)
	case self.Format != other.Format:
		return refuse(FormatVersion, "node %s (build %s) has format %d and node %s (build %s) has format %d; "+
			"run builds of the same format on both", self.NodeID, build(self), self.Format, other.NodeID, build(other), other.Format)
	case self.Cluster != other.Cluster && self.Cluster != storage.ClusterID{} && other.Cluster != storage.ClusterID{}:
		return refuse(ForeignCluster, "node %s belongs to cluster %x and node %s to cluster %x; a node never changes its "+
			"cluster: name addresses of its own cluster, or start it with another, new --data-dir",
			self.NodeID, self.Cluster, other.NodeID, other.Cluster)
	case wanted != "" && wanted != answering:
		return refuse(IdentityMismatch, "node %s was wanted and node %s answers; the address is another node's now, or "+
			"the node's data directory was made anew: then remove the old member, and the new one can join", wanted, answering)
	}
	if m.opts.Admit == nil {
		return nil
	}
	if err := m.opts.Admit(kind, other); err != nil {
		return asRefusal(err)
	}
	return nil
}

func build(i Identity) string {
	if i.Version == "" {
		return "unknown"
	}
	return i.Version
}

// misread turns an error of reading or of TLS into a refusal if the other end is not a runlog node,
// or not of this kind; nil: the connection just broke.
func (m *Mesh) misread(err error) *RefusedError {
	overTLS := m.opts.TLS != nil
	if e, ok := errors.AsType[*strangerError](err); ok {
		return stranger(e.first, overTLS)
	}
	if e, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return stranger(e.RecordHeader[:], overTLS)
	}
	if e, ok := errors.AsType[versionError](err); ok {
		return refuse(FormatVersion, "the other node begins with a handshake of version %d and this one knows version %d; "+
			"run builds of the same format on both", byte(e), handshakeVersion)
	}
	if errors.Is(err, errMessage) {
		return refuse(Protocol, "not a handshake of a runlog node (%v)", err)
	}
	// A TLS alert, which any read may return.
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "remote error" {
		refused := refuse(Certificate, "the other end refused the certificate of this node, or TLS with it (%v); its log may say more", e.Err)
		refused.Remote = true
		return refused
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return refuse(Protocol, "nothing that is a handshake came within %v; runlog's port for nodes (--raft-listen) "+
			"was wanted, and a node that is not overloaded", m.opts.handshakeTimeout)
	}
	if e, ok := errors.AsType[*tlsError](err); ok && !errors.Is(err, io.EOF) && !errors.Is(err, context.Canceled) && !isNet(err) {
		return refuse(Protocol, "TLS cannot be agreed on (%v); both nodes need TLS 1.3", e.cause)
	}
	return nil
}

// tlsError is a TLS handshake that failed.
type tlsError struct{ cause error }

func (e *tlsError) Error() string { return e.cause.Error() }
func (e *tlsError) Unwrap() error { return e.cause }

func isNet(err error) bool {
	_, ok := errors.AsType[net.Error](err)
	return ok
}

// stranger names the other end's protocol by its first bytes.
func stranger(first []byte, overTLS bool) *RefusedError {
	text := string(first)
	switch {
	case text != "" && strings.HasPrefix(magic, text[:min(len(text), len(magic))]):
		return refuse(Protocol, "one end speaks TLS and the other does not; start both nodes with certificates, or both without")
	case len(first) >= 2 && (first[0] == 0x15 || first[0] == 0x16) && first[1] == 3:
		return refuse(Protocol, "the other end speaks TLS and this one does not; start both nodes with certificates, or both without")
	// an HTTP/2 SETTINGS frame
	case isHTTP(text) || len(first) >= 5 && first[0] == 0 && first[3] == 4:
		return refuse(Protocol, "the other end speaks HTTP or gRPC; nodes talk to each other on a port of their own, --raft-listen")
	case overTLS:
		return refuse(Protocol, "the other end does not speak TLS (it began with %q); is it a runlog node, and started with certificates?", text)
	}
	return refuse(Protocol, "the other end is not a runlog node (it began with %q); nodes talk to each other on --raft-listen", text)
}

// isHTTP recognises requests, answers and the preface of HTTP/2 by five bytes.
func isHTTP(first string) bool {
	for _, p := range []string{"HTTP/", "GET ", "POST ", "PUT ", "HEAD ", "DELET", "OPTIO", "PATCH", "CONNE", "TRACE", "PRI *"} {
		if strings.HasPrefix(first, p) {
			return true
		}
	}
	return false
}
