package export

import (
	"fmt"

	"runlog/audit/proof"
)

// Manifest is what a file says of itself.
type Manifest struct {
	proof.Export
	// Signers says to have signed, a name and a key's id each. None: it is not signed.
	Signers []string
	// Key is the public key with which the signature was verified; empty: it was not.
	Key string
}

// readManifest reads a manifest, and verifies that one of the public keys has signed it where there
// are any. unsigned is what is wrong with the signature; err wraps errFile.
func readManifest(note string, keys []string) (m Manifest, unsigned, err error) {
	st, signers, err := proof.Peek(note)
	if err != nil {
		return m, nil, fmt.Errorf("%w: its manifest: %w", errFile, err)
	}
	e, err := proof.ParseExport(st)
	if err != nil {
		return m, nil, fmt.Errorf("%w: its manifest: %w", errFile, err)
	}
	m = Manifest{Export: *e, Signers: signers}
	if len(keys) > 0 {
		_, m.Key, unsigned = proof.Open(note, keys...)
	}
	return m, unsigned, nil
}
