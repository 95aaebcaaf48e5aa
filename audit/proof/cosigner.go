package proof

import (
	"crypto"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"time"
)

// Cosigner signs checkpoints as a witness does (TR-4), in the form of C2SP tlog-cosignature. Other
// statements are never signed with its key.
type Cosigner struct {
	seed   [SeedSize]byte
	key    crypto.Signer
	public WitnessKey
}

// NewCosigner returns the cosigner of a name with the Ed25519 key of a seed (RFC 8032). The name is
// best a URL without its scheme, which the witness's operator owns. The error is ErrKey.
func NewCosigner(name string, seed [SeedSize]byte) (*Cosigner, error) {
	return NewCosignerOfType(KeyEd25519, name, seed)
}

// NewCosignerOfType returns a cosigner with a key of another type, KeyEd25519 or KeyMLDSA44. The
// error is ErrKey.
func NewCosignerOfType(keyType, name string, seed [SeedSize]byte) (*Cosigner, error) {
	kind, err := cosignerKindOf(keyType)
	if err != nil {
		return nil, err
	}
	key, public, err := kind.private(seed)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	raw := append([]byte{kind.alg}, public...)
	known, err := ParseWitnessKey(keyText(name, cosignerID(name, raw), raw))
	if err != nil {
		return nil, err
	}
	return &Cosigner{seed, key, *known}, nil
}

// privatePrefix begins the text form of a secret key (C2SP signed-note).
const privatePrefix = "PRIVATE+KEY+"

// Private returns the secret key in its text form, PRIVATE+KEY+name+id+seed, to be kept in a file.
func (c *Cosigner) Private() string {
	return privatePrefix + keyText(c.public.name, c.public.id, append([]byte{c.public.kind.alg}, c.seed[:]...))
}

// ParseCosigner parses what Private returned. The error is ErrKey, and does not have the key.
func ParseCosigner(text string) (*Cosigner, error) {
	fault := fmt.Errorf("%w: not the secret key of a witness", ErrKey)
	rest, ok := strings.CutPrefix(text, privatePrefix)
	parts := strings.SplitN(rest, "+", 3)
	if !ok || len(parts) != 3 {
		return nil, fault
	}
	raw, err := base64.StdEncoding.DecodeString(parts[2])
	kind := cosignerKindOfKey(raw)
	if err != nil || len(raw) != 1+SeedSize || kind == nil {
		return nil, fault
	}
	c, err := NewCosignerOfType(kind.name, parts[0], [SeedSize]byte(raw[1:]))
	if err != nil || c.Private() != text {
		return nil, fault
	}
	return c, nil
}

// Key returns the public key.
func (c *Cosigner) Key() *WitnessKey { return &c.public }

// Cosign returns the signature line of a checkpoint, which may have signatures. It says that at
// this time the checkpoint was the largest of its log that the witness knew, and continued all
// before. The time is in whole seconds, and after 1970.
func (c *Cosigner) Cosign(checkpoint string, at time.Time) (string, error) {
	body, _, err := split(checkpoint)
	if err != nil {
		return "", err
	}
	if at.Unix() <= 0 {
		return "", fmt.Errorf("proof: cosign: the clock says %s; set it", at.UTC().Format(time.RFC3339))
	}
	seconds := uint64(at.Unix())
	message, err := c.public.kind.message(c.public.name, body, seconds)
	if err != nil {
		return "", err
	}
	signature, err := c.key.Sign(nil, message, crypto.Hash(0))
	if err != nil {
		return "", fmt.Errorf("proof: cosign: %w", err)
	}
	raw := binary.BigEndian.AppendUint32(nil, c.public.id)
	raw = append(binary.BigEndian.AppendUint64(raw, seconds), signature...)
	return signatureLine + c.public.name + " " + base64.StdEncoding.EncodeToString(raw) + "\n", nil
}
