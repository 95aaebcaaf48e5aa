package proof

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Checkpoint is a cluster's statement about its log at one moment (TR-2): the root of the tree over
// all records, and that of the tree over the heads of all runs. Its text has the form of C2SP
// tlog-checkpoint, so that tools for transparency logs read it:
//
//	runlog/0191a3c8f6b27d4e8f1a2b3c4d5e6f70/5be1c0ffee5be100  origin
//	57                                                        records, which are the leaves
//	CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=              root
//	position 120                                              then a line for each further fact
//	complete-through 2026-02-11T10:30:00Z
//	runs 3
//	heads 52e00b0b6aef7652d43ddf176de4dc87acec9c04166028dea9185b24ac3fdf12
//
// The tree of records only grows (TR-1): from one checkpoint to each later one there is a proof
// that nothing before was changed. The tree of heads shows that at this size no further record of a
// run exists.
type Checkpoint struct {
	Cluster [16]byte
	// Incarnation of the cluster's log. A recovery, or a cluster that continues from a backup,
	// begins another one, because records may have been lost then.
	Incarnation [8]byte
	// Size is the number of records, which are the leaves of the tree, and Root its root (RFC 6962
	// section 2.1).
	Size uint64
	Root tlog.Hash
	// Position in the commit order up to which it reaches.
	Position uint64
	// CompleteThrough is the stamp of the last entry up to there, in nanoseconds since 1970: every
	// event that was stamped at or before it is in the tree.
	CompleteThrough int64
	// Runs is the number of runs, and Heads the root of the tree over their heads, in the order in
	// which the runs were made.
	Runs  uint64
	Heads tlog.Hash
}

// Origin returns the first line: it names the log.
func (c *Checkpoint) Origin() string { return Origin(c.Cluster, c.Incarnation) }

// Origin returns the name of a log, under which its checkpoints are signed.
func Origin(cluster [16]byte, incarnation [8]byte) string {
	return fmt.Sprintf("%s/%x", KeyName(cluster), incarnation[:])
}

// ParseOrigin returns what Origin made a name of.
func ParseOrigin(origin string) (cluster [16]byte, incarnation [8]byte, ok bool) {
	at := strings.LastIndexByte(origin, '/')
	if at < 0 {
		return cluster, incarnation, false
	}
	cluster, ok = ClusterOf(origin[:at])
	raw, err := hex.DecodeString(origin[at+1:])
	if !ok || err != nil || len(raw) != len(incarnation) {
		return cluster, incarnation, false
	}
	incarnation = [8]byte(raw)
	return cluster, incarnation, Origin(cluster, incarnation) == origin
}

// Text returns the checkpoint as a cluster signs it.
func (c *Checkpoint) Text() string {
	s := Statement{Title: strings.Join([]string{
		c.Origin(), strconv.FormatUint(c.Size, 10), base64.StdEncoding.EncodeToString(c.Root[:]),
	}, "\n")}
	s.Add("position", strconv.FormatUint(c.Position, 10)).Add("complete-through", FormatTime(c.CompleteThrough))
	return s.Add("runs", strconv.FormatUint(c.Runs, 10)).Add("heads", hex.EncodeToString(c.Heads[:])).String()
}

// ParseCheckpoint reads a checkpoint's text. Errors are ErrStatement.
func ParseCheckpoint(text string) (*Checkpoint, error) {
	const firstLines = 3
	lines := strings.SplitN(text, "\n", firstLines+1)
	if len(lines) <= firstLines {
		return nil, fmt.Errorf("%w: a checkpoint has more than %d lines", ErrStatement, firstLines)
	}
	c := &Checkpoint{}
	if err := c.parseTree(lines[0], lines[1], lines[2]); err != nil {
		return nil, err
	}
	s, err := ParseStatement(lines[0] + "\n" + lines[3])
	for _, step := range []func() error{
		func() (err error) { c.Position, err = s.TakeNumber("position"); return err },
		func() (err error) { c.CompleteThrough, err = s.TakeTime("complete-through"); return err },
		func() (err error) { c.Runs, err = s.TakeNumber("runs"); return err },
		func() error { return s.takeHex("heads", c.Heads[:]) },
		func() error { return s.End() },
	} {
		if err == nil {
			err = step()
		}
	}
	if err == nil && c.Runs > maxLeaves {
		err = fmt.Errorf("%w: %d runs are more than a tree can have", ErrStatement, c.Runs)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// maxLeaves is more leaves than a tree can have, here and in projector/tree. The walks of a tree,
// those of package tlog among them, do not end for more than 1<<62.
const maxLeaves = 1 << 60

// parseTree reads the lines that every tlog-checkpoint has.
func (c *Checkpoint) parseTree(origin, size, root string) (err error) {
	var ok bool
	if c.Cluster, c.Incarnation, ok = ParseOrigin(origin); !ok {
		return fmt.Errorf("%w: %q is no checkpoint of a runlog cluster", ErrStatement, origin)
	}
	if c.Size, err = strconv.ParseUint(size, 10, 63); err != nil || strconv.FormatUint(c.Size, 10) != size {
		return fmt.Errorf("%w: the size of the tree, %q, is no number", ErrStatement, size)
	}
	if c.Size > maxLeaves {
		return fmt.Errorf("%w: %d records are more than a tree can have", ErrStatement, c.Size)
	}
	if c.Root, err = parseBase64(root); err != nil {
		return fmt.Errorf("%w: the root: %w", ErrStatement, err)
	}
	return nil
}

// SignCheckpoint returns a checkpoint as a signed note. The key signs it under the name of the log,
// its origin, as tools for transparency logs want it, and not under that of the cluster.
func (s *Signer) SignCheckpoint(c *Checkpoint) (string, error) {
	key, err := CheckpointKey(s.public, c.Incarnation)
	if err != nil {
		return "", err
	}
	v, err := note.NewVerifier(key)
	if err != nil {
		return "", fmt.Errorf("proof: %w", err)
	}
	return signAs(c.Text(), originSigner{s.signer, v})
}

// originSigner signs under another name.
type originSigner struct {
	note.Signer
	as note.Verifier
}

func (s originSigner) Name() string    { return s.as.Name() }
func (s originSigner) KeyHash() uint32 { return s.as.KeyHash() }

// CheckpointKey returns the text form of a cluster's public key as the key of a log: its name is
// the origin of the log's checkpoints. The error is ErrKey.
func CheckpointKey(publicKey string, incarnation [8]byte) (string, error) {
	cluster, ok := ClusterOf(publicKey)
	if _, err := KeyID(publicKey); err != nil || !ok {
		return "", fmt.Errorf("%w: %q is no key of a cluster", ErrKey, publicKey)
	}
	raw, err := base64.StdEncoding.DecodeString(strings.SplitN(publicKey, "+", 3)[2])
	if err == nil {
		raw = raw[1:] // without the algorithm, which KeyID has seen
		publicKey, err = note.NewEd25519VerifierKey(Origin(cluster, incarnation), raw)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrKey, err)
	}
	return publicKey, nil
}

// OpenCheckpoint verifies a note's signature by one of the public keys, in their text form, of the
// checkpoint's cluster. It returns the checkpoint and the key. Signatures under other names, as
// those of witnesses, are not looked at; a second one under the origin is refused, because it would
// not be verified. Errors are those of Open.
func OpenCheckpoint(text string, publicKeys ...string) (*Checkpoint, string, error) {
	c, _, err := PeekCheckpoint(text)
	if err != nil {
		return nil, "", err
	}
	given := map[string]string{}
	var keys []string
	for _, key := range publicKeys {
		if _, err := KeyID(key); err != nil {
			return nil, "", err
		}
		if cluster, ok := ClusterOf(key); ok && cluster == c.Cluster {
			as, err := CheckpointKey(key, c.Incarnation)
			if err != nil {
				return nil, "", err
			}
			if given[as] == "" {
				keys = append(keys, as)
			}
			given[as] = key
		}
	}
	own, err := signedBy(text, c.Origin())
	if err != nil {
		return nil, "", err
	}
	_, key, err := openText(own, keys)
	if errors.Is(err, ErrUnsigned) && own != text {
		err = fmt.Errorf("%w: none of its signatures is by %s", ErrUnknownKey, c.Origin())
	}
	if err == nil {
		err = signedOnce(own)
	}
	if err != nil {
		return nil, "", err
	}
	return c, given[key], nil
}

// PeekCheckpoint returns the checkpoint of a note, and the claimed signers under its origin as
// name+id, without verifying a signature.
func PeekCheckpoint(text string) (*Checkpoint, []string, error) {
	body, _, err := split(text)
	if err != nil {
		return nil, nil, err
	}
	c, err := ParseCheckpoint(body)
	if err != nil {
		return nil, nil, err
	}
	own, err := signedBy(text, c.Origin())
	if err != nil {
		return nil, nil, err
	}
	_, who, err := peekText(own)
	return c, who, err
}

const (
	// maxNote bounds a checkpoint with its signatures, in bytes, and maxSignatures how many it has:
	// more than any policy has witnesses.
	maxNote       = 1 << 20
	maxSignatures = 1000
)

// signedBy returns a note with the signatures of one name alone.
func signedBy(text, name string) (string, error) {
	body, signatures, err := split(text)
	if err != nil {
		return "", err
	}
	if err := checkSignatures(text, signatures); err != nil {
		return "", err
	}
	var own strings.Builder
	own.WriteString(body + "\n")
	for line := range strings.Lines(signatures) {
		who, _, ok := strings.Cut(strings.TrimPrefix(line, signatureLine), " ")
		if !ok || !strings.HasPrefix(line, signatureLine) || !strings.HasSuffix(line, "\n") {
			return "", fmt.Errorf("%w: %q is no signature", ErrNote, line)
		}
		if who == name {
			own.WriteString(line)
		}
	}
	return own.String(), nil
}

// checkSignatures refuses a note with more than a verifier reads.
func checkSignatures(text, signatures string) error {
	if len(text) > maxNote || strings.Count(signatures, "\n") > maxSignatures {
		return fmt.Errorf("%w: it has more than %d bytes or %d signatures", ErrNote, maxNote, maxSignatures)
	}
	return nil
}
