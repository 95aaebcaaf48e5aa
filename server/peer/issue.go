package peer

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

const (
	// caValid is how long a new authority is: its end is the end of every node's certificate.
	caValid = 10 * 365 * 24 * time.Hour
	// skew is how far in the past a new certificate's validity begins, for machines with slow
	// clocks.
	skew = time.Hour
)

// CAFiles returns the paths of the authority's certificate and key in dir.
func CAFiles(dir string) (cert, key string) {
	return filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")
}

// NodeFiles returns the paths of a node's certificate and key in dir. Names are percent-encoded.
func NodeFiles(dir, nodeID string) (cert, key string) {
	name := url.PathEscape(nodeID)
	return filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
}

// MakeCA makes a certificate authority for one cluster: ca.crt and ca.key in dir, ECDSA P-256, for
// ten years. It does not overwrite files: os.ErrExist.
func MakeCA(dir string, now time.Time) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("peer: make a key: %w", err)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "runlog cluster CA"},
		NotBefore:             now.Add(-skew),
		NotAfter:              now.Add(caValid),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return fmt.Errorf("peer: sign: %w", err)
	}
	certFile, keyFile := CAFiles(dir)
	return writePair(certFile, keyFile, der, key)
}

// IssueNode makes a key and a certificate for a node, signed by the authority in dir: <node>.crt
// and <node>.key, percent-encoded, ECDSA P-256. It returns the end of the validity, which is no
// later than the authority's. It does not overwrite files: os.ErrExist.
func IssueNode(dir, nodeID string, now time.Time, valid time.Duration) (ends time.Time, err error) {
	if err := CheckNodeID(nodeID); err != nil {
		return ends, err
	}
	if valid <= 0 {
		return ends, fmt.Errorf("peer: a certificate cannot be valid for %v", valid)
	}
	ca, signer, err := readCA(dir)
	if err != nil {
		return ends, err
	}
	if now.After(ca.NotAfter) {
		return ends, refuse(Certificate, "the certificate authority in %s is expired since %s", dir, ca.NotAfter.UTC().Format(time.RFC3339))
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return ends, fmt.Errorf("peer: make a key: %w", err)
	}
	ends = now.Add(valid).Truncate(time.Second)
	if ends.After(ca.NotAfter) {
		ends = ca.NotAfter
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: nodeID},
		URIs:                  []*url.URL{nameURI(nodeID)},
		NotBefore:             now.Add(-skew),
		NotAfter:              ends,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, key.Public(), signer)
	if err != nil {
		return ends, fmt.Errorf("peer: sign: %w", err)
	}
	certFile, keyFile := NodeFiles(dir, nodeID)
	return ends, writePair(certFile, keyFile, der, key)
}

// CheckNodeID refuses a node name that certificates and their files cannot have.
func CheckNodeID(nodeID string) error {
	switch {
	case nodeID == "" || len(nodeID) > maxNodeID || !plain(nodeID):
		return fmt.Errorf("peer: a node's name is 1 to %d printable bytes, not %q", maxNodeID, clip(nodeID, maxNodeID))
	case nodeID == "ca" || nodeID == "." || nodeID == "..":
		return fmt.Errorf("peer: no node can have certificate files under the name %q", nodeID)
	}
	return nil
}

// readCA returns the authority's certificate and its key, of any type: operators may bring their
// own.
func readCA(dir string) (*x509.Certificate, crypto.Signer, error) {
	certFile, keyFile := CAFiles(dir)
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, nil, fmt.Errorf("peer: certificate authority in %s: %w", dir, err)
	}
	ca, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return nil, nil, fmt.Errorf("peer: certificate authority in %s: %w", dir, err)
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok || !ca.IsCA {
		return nil, nil, fmt.Errorf("peer: %s is no certificate authority that can sign", certFile)
	}
	return ca, signer, nil
}

// writePair writes key and certificate, both or, as far as that can be undone, none.
func writePair(certFile, keyFile string, der []byte, key *ecdsa.PrivateKey) error {
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("peer: encode a key: %w", err)
	}
	if err := writeNew(keyFile, 0o600, "PRIVATE KEY", pkcs8); err != nil {
		return err
	}
	if err := writeNew(certFile, 0o644, "CERTIFICATE", der); err != nil {
		return errors.Join(err, os.Remove(keyFile))
	}
	return nil
}

func writeNew(path string, mode os.FileMode, kind string, der []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return fmt.Errorf("peer: %w", err)
	}
	err = pem.Encode(f, &pem.Block{Type: kind, Bytes: der})
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(fmt.Errorf("peer: write %s: %w", path, err), os.Remove(path))
	}
	return nil
}
