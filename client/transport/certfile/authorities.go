package certfile

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// maxSubject bounds what an error repeats of a certificate, in bytes.
const maxSubject = 200

// Authorities reads the certificates of authorities, as PEM; several during a replacement.
func Authorities(text []byte) (*x509.CertPool, error) {
	roots, count := x509.NewCertPool(), 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("holds a certificate that cannot be read: %w", err)
		}
		if !c.IsCA {
			subject := c.Subject.String()
			return nil, fmt.Errorf("holds the certificate %q, which is that of no certificate authority", subject[:min(len(subject), maxSubject)])
		}
		roots.AddCert(c)
		count++
	}
	if count == 0 {
		return nil, errors.New("holds no certificate")
	}
	return roots, nil
}
