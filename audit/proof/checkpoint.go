package proof

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"runlog/proto/contract"
)

// Checkpoint is a cluster's statement about all its runs at one moment: the root of the tree over
// their heads. Its text has the form of C2SP tlog-checkpoint, so that tools for transparency logs
// read it:
//
//	runlog/0191a3c8f6b27d4e8f1a2b3c4d5e6f70       origin: the name of the key that signs
//	3                                             runs, which are the leaves
//	CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=  root
//	position 120                                  then a line for each further fact (Statement)
//	complete-through 2026-02-11T10:30:00Z
//	events 57
//	previous 5f70…
//
// The tree of a transparency log only grows; here a leaf changes as often as its run does. The past
// is kept by the log of checkpoints, each of which names the one before.
type Checkpoint struct {
	Cluster [16]byte
	// Runs are the leaves of the tree, in the order in which the runs were made, and Root its root
	// (RFC 9162 section 2.1).
	Runs uint64
	Root tlog.Hash
	// Position in the commit order up to which it reaches.
	Position uint64
	// CompleteThrough is the stamp of the last entry up to there, in nanoseconds since 1970: every
	// event that was stamped at or before it is in the tree.
	CompleteThrough int64
	// Events that were stored up to there.
	Events uint64
	// Previous is the SHA-256 of the text of the checkpoint before; zeros: none.
	Previous contract.Digest
}

// Text returns the checkpoint as a cluster signs it.
func (c *Checkpoint) Text() string {
	s := Statement{Title: strings.Join([]string{
		KeyName(c.Cluster), strconv.FormatUint(c.Runs, 10), base64.StdEncoding.EncodeToString(c.Root[:]),
	}, "\n")}
	s.Add("position", strconv.FormatUint(c.Position, 10)).Add("complete-through", FormatTime(c.CompleteThrough))
	return s.Add("events", strconv.FormatUint(c.Events, 10)).Add("previous", c.Previous.String()).String()
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
		func() (err error) { c.Events, err = s.TakeNumber("events"); return err },
		func() error { return s.takeHex("previous", c.Previous[:]) },
		func() error { return s.End() },
	} {
		if err == nil {
			err = step()
		}
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// parseTree reads the lines that every tlog-checkpoint has.
func (c *Checkpoint) parseTree(origin, size, root string) (err error) {
	if err := c.parseOrigin(origin); err != nil {
		return err
	}
	if c.Runs, err = strconv.ParseUint(size, 10, 63); err != nil || strconv.FormatUint(c.Runs, 10) != size {
		return fmt.Errorf("%w: the size of the tree, %q, is no number", ErrStatement, size)
	}
	hash, err := base64.StdEncoding.Strict().DecodeString(root)
	if err != nil || len(hash) != len(c.Root) || base64.StdEncoding.EncodeToString(hash) != root {
		return fmt.Errorf("%w: the root %q is not 32 bytes in base64", ErrStatement, root)
	}
	copy(c.Root[:], hash)
	return nil
}

func (c *Checkpoint) parseOrigin(origin string) error {
	cluster, ok := ClusterOf(origin)
	if !ok {
		return fmt.Errorf("%w: %q is no checkpoint of a runlog cluster", ErrStatement, origin)
	}
	c.Cluster = cluster
	return nil
}

// SignCheckpoint returns a checkpoint as a signed note.
func (s *Signer) SignCheckpoint(c *Checkpoint) (string, error) { return s.sign(c.Text()) }

// OpenCheckpoint verifies a note's signature by one of the public keys, in their text form, of the
// checkpoint's cluster. It returns the checkpoint and the key. Errors are those of Open.
func OpenCheckpoint(text string, publicKeys ...string) (*Checkpoint, string, error) {
	body, key, err := openText(text, publicKeys)
	if err != nil {
		return nil, "", err
	}
	c, err := ParseCheckpoint(body)
	if err != nil {
		return nil, "", err
	}
	if name := KeyName(c.Cluster); !strings.HasPrefix(key, name+"+") {
		return nil, "", fmt.Errorf("%w: the checkpoint is one of %s", ErrUnknownKey, name)
	}
	return c, key, nil
}

// PeekCheckpoint returns the checkpoint of a note, and the claimed signers, without verifying a
// signature.
func PeekCheckpoint(text string) (*Checkpoint, []string, error) {
	body, who, err := peekText(text)
	if err != nil {
		return nil, nil, err
	}
	c, err := ParseCheckpoint(body)
	return c, who, err
}

// TextDigest returns the SHA-256 of a note's text: the value of Previous in the next checkpoint.
func TextDigest(text string) (contract.Digest, error) {
	body, _, err := split(text)
	return sha256.Sum256([]byte(body)), err
}
