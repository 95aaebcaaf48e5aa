package proof

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
)

const (
	// algCosignature is the first byte of the key of an Ed25519 cosigner (C2SP tlog-cosignature).
	algCosignature = 4
	keyIDSize      = 4
	timeSize       = 8
)

// Cosigner signs checkpoints as a witness does (TR-4), in the form of C2SP tlog-cosignature with
// Ed25519. Other statements are never signed with its key.
type Cosigner struct {
	key    ed25519.PrivateKey
	public WitnessKey
}

// NewCosigner returns the cosigner of a name with the key of a seed (RFC 8032). The name is best a
// URL without its scheme, which the witness's operator owns. The error is ErrKey.
func NewCosigner(name string, seed [ed25519.SeedSize]byte) (*Cosigner, error) {
	key := ed25519.NewKeyFromSeed(seed[:])
	raw := append([]byte{algCosignature}, key.Public().(ed25519.PublicKey)...)
	id := cosignerID(name, raw)
	public, err := ParseWitnessKey(fmt.Sprintf("%s+%08x+%s", name, id, base64.StdEncoding.EncodeToString(raw)))
	if err != nil {
		return nil, err
	}
	return &Cosigner{key, *public}, nil
}

// privatePrefix begins the text form of a secret key (C2SP signed-note).
const privatePrefix = "PRIVATE+KEY+"

// Private returns the secret key in its text form, PRIVATE+KEY+name+id+seed, to be kept in a file.
func (c *Cosigner) Private() string {
	raw := append([]byte{algCosignature}, c.key.Seed()...)
	return fmt.Sprintf("%s%s+%08x+%s", privatePrefix, c.public.name, c.public.id, base64.StdEncoding.EncodeToString(raw))
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
	if err != nil || len(raw) != 1+ed25519.SeedSize || raw[0] != algCosignature {
		return nil, fault
	}
	c, err := NewCosigner(parts[0], [ed25519.SeedSize]byte(raw[1:]))
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
	raw := binary.BigEndian.AppendUint32(nil, c.public.id)
	raw = binary.BigEndian.AppendUint64(raw, seconds)
	raw = append(raw, ed25519.Sign(c.key, cosigned(body, seconds))...)
	return signatureLine + c.public.name + " " + base64.StdEncoding.EncodeToString(raw) + "\n", nil
}

// cosigned is what a witness signs.
func cosigned(body string, seconds uint64) []byte {
	return []byte("cosignature/v1\ntime " + strconv.FormatUint(seconds, 10) + "\n" + body)
}

func cosignerID(name string, raw []byte) uint32 {
	sum := sha256.Sum256(slices.Concat([]byte(name+"\n"), raw))
	return binary.BigEndian.Uint32(sum[:])
}

// WitnessKey is the public key of a witness. It is a note.Verifier of cosignatures.
type WitnessKey struct {
	name string
	id   uint32
	key  ed25519.PublicKey
}

var _ note.Verifier = (*WitnessKey)(nil)

// ParseWitnessKey parses a witness's public key in its text form, name+id+key with the id in eight
// hexadecimal digits and the key in base64 (C2SP signed-note), of an Ed25519 cosigner. The error is
// ErrKey.
func ParseWitnessKey(text string) (*WitnessKey, error) {
	fault := func(what string) error { return fmt.Errorf("%w: %q %s", ErrKey, text, what) }
	parts := strings.SplitN(text, "+", 3)
	if len(parts) != 3 || !isKeyName(parts[0]) {
		return nil, fault("is not of the form name+id+key")
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(parts[2])
	if err != nil || base64.StdEncoding.EncodeToString(raw) != parts[2] || len(raw) == 0 {
		return nil, fault("has no key in base64")
	}
	if raw[0] != algCosignature || len(raw) != 1+ed25519.PublicKeySize {
		return nil, fault(fmt.Sprintf("is no Ed25519 key of a witness: its key has type %d and %d bytes, and type %d with %d is known",
			raw[0], len(raw), algCosignature, 1+ed25519.PublicKeySize))
	}
	k := &WitnessKey{name: parts[0], id: cosignerID(parts[0], raw), key: raw[1:]}
	if fmt.Sprintf("%08x", k.id) != parts[1] {
		return nil, fault("has an id that is not of its name and key")
	}
	return k, nil
}

// isKeyName reports whether a note can be signed under a name (C2SP signed-note).
func isKeyName(name string) bool {
	raw := make([]byte, ed25519.PublicKeySize)
	key, err := note.NewEd25519VerifierKey(name, raw)
	if err == nil {
		_, err = note.NewVerifier(key)
	}
	return err == nil
}

// String returns the text form.
func (k *WitnessKey) String() string {
	return fmt.Sprintf("%s+%08x+%s", k.name, k.id, base64.StdEncoding.EncodeToString(append([]byte{algCosignature}, k.key...)))
}

// Name implements note.Verifier.
func (k *WitnessKey) Name() string { return k.name }

// KeyHash implements note.Verifier.
func (k *WitnessKey) KeyHash() uint32 { return k.id }

// ID returns what names the key in a signature: name+id.
func (k *WitnessKey) ID() string { return fmt.Sprintf("%s+%08x", k.name, k.id) }

// Same reports whether two keys have the same secret part, whatever their names.
func (k *WitnessKey) Same(other *WitnessKey) bool { return k.key.Equal(other.key) }

// Verify implements note.Verifier. The signature is a time, in seconds in eight bytes, and 64 bytes
// of Ed25519.
func (k *WitnessKey) Verify(body, signature []byte) bool {
	if len(signature) != timeSize+ed25519.SignatureSize {
		return false
	}
	seconds := binary.BigEndian.Uint64(signature)
	return seconds > 0 && int64(seconds) > 0 && ed25519.Verify(k.key, cosigned(string(body), seconds), signature[timeSize:])
}

// Cosignature is a witness's verified signature under a checkpoint.
type Cosignature struct {
	Key *WitnessKey
	// At is when the witness signed, by its own clock.
	At time.Time
	// Line is the signature, with its line feed.
	Line string
}

// Cosignatures returns the verified signatures of these witnesses under a checkpoint: of each that
// signed it the one with the latest time, in the order of the keys. Signatures of others are not
// looked at. The error is ErrNote, or ErrSignature if one names a key of a witness and is not by
// it.
func Cosignatures(text string, keys ...*WitnessKey) ([]Cosignature, error) {
	body, signatures, err := split(text)
	if err != nil {
		return nil, err
	}
	if err := checkSignatures(text, signatures); err != nil {
		return nil, err
	}
	latest := map[*WitnessKey]Cosignature{}
	for line := range strings.Lines(signatures) {
		name, id, raw, err := parseSignature(line)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(keys, func(k *WitnessKey) bool { return k.name == name && k.id == id })
		if i < 0 {
			continue
		}
		if !keys[i].Verify([]byte(body), raw) {
			return nil, fmt.Errorf("%w: key %s+%08x of a witness", ErrSignature, name, id)
		}
		at := time.Unix(int64(binary.BigEndian.Uint64(raw)), 0).UTC()
		if at.After(latest[keys[i]].At) {
			latest[keys[i]] = Cosignature{keys[i], at, line}
		}
	}
	var found []Cosignature
	for _, k := range keys {
		if c, ok := latest[k]; ok {
			found = append(found, c)
			delete(latest, k)
		}
	}
	return found, nil
}

// parseSignature parses a signature line of a note.
func parseSignature(line string) (name string, id uint32, signature []byte, err error) {
	fault := fmt.Errorf("%w: %q is no signature", ErrNote, line)
	rest, dash := strings.CutPrefix(line, signatureLine)
	rest, whole := strings.CutSuffix(rest, "\n")
	name, text, ok := strings.Cut(rest, " ")
	if !dash || !whole || !ok || name == "" {
		return "", 0, nil, fault
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) <= keyIDSize || base64.StdEncoding.EncodeToString(raw) != text {
		return "", 0, nil, fault
	}
	return name, binary.BigEndian.Uint32(raw), raw[keyIDSize:], nil
}
