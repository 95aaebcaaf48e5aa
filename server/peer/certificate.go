package peer

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
	"strings"
	"time"
)

// The name of a node in its certificate: runlog://node/<node id>.
const (
	nameScheme = "runlog"
	nameHost   = "node"
)

// role is which end shows a certificate.
type role x509.ExtKeyUsage

const (
	clientRole = role(x509.ExtKeyUsageClientAuth)
	serverRole = role(x509.ExtKeyUsageServerAuth)
)

// nameURI is the subject alternative name of a node's certificate.
func nameURI(node string) *url.URL {
	return &url.URL{Scheme: nameScheme, Host: nameHost, Path: "/" + node}
}

// nameOf judges the certificate that the other end showed, and returns the node that it names. TLS
// itself has made sure only that the other end has the certificate's key.
func (m *material) nameOf(state tls.ConnectionState, other role) (string, *RefusedError) {
	if state.DidResume {
		return "", refuse(Certificate, "the other end resumed a TLS session, which shows no certificate")
	}
	return m.nameIn(state.PeerCertificates, other)
}

func (m *material) nameIn(chain []*x509.Certificate, other role) (string, *RefusedError) {
	if len(chain) == 0 {
		return "", refuse(Certificate, "the dialling end shows no certificate; nodes of this cluster need one each (runlog cluster certs makes them)")
	}
	leaf, now := chain[0], m.clock()
	who := describe(leaf)
	const remedy = "issue a new one and put it in the place of the old: a node reads it without a restart"
	if now.After(leaf.NotAfter) {
		return "", refuse(Certificate, "%s is expired since %s; %s", who, leaf.NotAfter.UTC().Format(time.RFC3339), remedy)
	}
	if now.Before(leaf.NotBefore) {
		return "", refuse(Certificate, "%s is not valid before %s, and it is %s here; set the clocks right, or %s", who,
			leaf.NotBefore.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339), remedy)
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: m.roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsage(other)},
	})
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "", refuse(Certificate, "%s is of another certificate authority (%q) than those that this cluster trusts; "+
			"issue it by the cluster's own, or add the other to the file of authorities on every node",
			who, clip(leaf.Issuer.String(), maxField))
	}
	if err != nil {
		return "", refuse(Certificate, "%s cannot be used: %v", who, err)
	}
	name, ok := namedIn(leaf)
	if !ok {
		return "", refuse(Certificate, "%s has not one name of the form %s, which a node's has; issue it by runlog cluster certs",
			who, nameURI("NODE"))
	}
	return name, nil
}

// describe names a certificate that is not believed yet.
func describe(leaf *x509.Certificate) string {
	if name, ok := namedIn(leaf); ok {
		return "the certificate of node " + clip(name, maxNodeID)
	}
	return "the certificate " + clip(leaf.Subject.String(), maxField)
}

// namedIn returns the node name in a certificate; empty if it has several.
func namedIn(leaf *x509.Certificate) (name string, ok bool) {
	for _, u := range leaf.URIs {
		if u.Scheme != nameScheme {
			continue
		}
		path, rooted := strings.CutPrefix(u.Path, "/")
		if ok || u.Host != nameHost || !rooted || path == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" {
			return "", false
		}
		name, ok = path, true
	}
	return name, ok
}
