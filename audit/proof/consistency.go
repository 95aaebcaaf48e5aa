package proof

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

// ErrContradiction means that a later checkpoint is not shown to continue an earlier one. If both
// are signed, of one origin, and have equally many records and different roots, they prove that
// records were changed. Otherwise the hashes do not fit: a cluster that has kept its log can always
// make those that do, so another node, or a later answer, may still show it.
var ErrContradiction = errors.New("proof: the later checkpoint is not shown to continue the earlier one")

// CheckConsistency verifies that the tree of a later checkpoint begins with all leaves of an
// earlier one, in their order (RFC 6962 section 2.1.2). The error is ErrContradiction. It says
// nothing about origins: a cluster that continues from a backup has another one, and the same
// leaves.
func CheckConsistency(earlier, later *Checkpoint, hashes []tlog.Hash) error {
	between := fmt.Sprintf("that of %s (%d records) and that of %s (%d records)",
		FormatTime(earlier.CompleteThrough), earlier.Size, FormatTime(later.CompleteThrough), later.Size)
	switch {
	case earlier.Size > later.Size:
		return fmt.Errorf("%w: %s: the later one has fewer records", ErrContradiction, between)
	case earlier.Size == 0 || earlier.Size == later.Size:
		if len(hashes) > 0 {
			return fmt.Errorf("%w: %s: a proof of them has no hashes, and here are %d", ErrContradiction, between, len(hashes))
		}
		if earlier.Size > 0 && earlier.Root != later.Root {
			return fmt.Errorf("%w: %s: they have different roots", ErrContradiction, between)
		}
	default:
		if err := tlog.CheckTree(hashes, int64(later.Size), later.Root, int64(earlier.Size), earlier.Root); err != nil {
			return fmt.Errorf("%w: %s: the hashes do not lead from one root to the other", ErrContradiction, between)
		}
	}
	if earlier.Position > later.Position || earlier.CompleteThrough > later.CompleteThrough {
		return fmt.Errorf("%w: %s: position and time went back", ErrContradiction, between)
	}
	return nil
}

// ProveConsistency returns the hashes with which CheckConsistency verifies that the tree of one
// size begins with the tree of another.
func ProveConsistency(earlier, later int64, r tlog.HashReader) ([]tlog.Hash, error) {
	if earlier == 0 || earlier == later {
		return nil, nil
	}
	return tlog.ProveTree(later, earlier, r)
}

// maxConsistency is more hashes than the proof of any two trees has.
const maxConsistency = 63

// Consistency is a checkpoint with the proof that it continues an earlier one.
type Consistency struct {
	// From is the size of the earlier checkpoint.
	From   uint64
	Hashes []tlog.Hash
	// Note is the later checkpoint, signed.
	Note string
}

// Text returns it in the form in which witnesses take checkpoints (C2SP tlog-witness): "old " and
// the earlier size, a line for each hash in base64, an empty line, the note.
func (c *Consistency) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "old %d\n", c.From)
	for _, h := range c.Hashes {
		b.WriteString(base64.StdEncoding.EncodeToString(h[:]))
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	b.WriteString(c.Note)
	return b.String()
}

// IsConsistency reports whether a text with this start is one of Consistency.Text.
func IsConsistency(begin string) bool { return strings.HasPrefix(begin, "old ") }

// ParseConsistency parses the output of Consistency.Text. It verifies nothing. The error is
// ErrNote.
func ParseConsistency(text string) (*Consistency, error) {
	head, note, ok := strings.Cut(text, "\n\n")
	lines := strings.Split(head, "\n")
	size, old := strings.CutPrefix(lines[0], "old ")
	if !ok || !old || len(lines) > 1+maxConsistency {
		return nil, fmt.Errorf("%w: it has no lines with a proof of consistency and an empty line behind them", ErrNote)
	}
	c := &Consistency{Note: note}
	var err error
	if c.From, err = strconv.ParseUint(size, 10, 63); err != nil || strconv.FormatUint(c.From, 10) != size {
		return nil, fmt.Errorf("%w: %q is no size of a tree", ErrNote, size)
	}
	for _, line := range lines[1:] {
		hash, err := parseBase64(line)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNote, err)
		}
		c.Hashes = append(c.Hashes, hash)
	}
	return c, nil
}

// parseBase64 parses a hash in base64.
func parseBase64(text string) (hash tlog.Hash, err error) {
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) != len(hash) || base64.StdEncoding.EncodeToString(raw) != text {
		return hash, fmt.Errorf("%q is not 32 bytes in base64", text)
	}
	return tlog.Hash(raw), nil
}
