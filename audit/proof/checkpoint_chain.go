package proof

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"runlog/proto/contract"
)

// ErrChain means that valid checkpoints do not follow one another.
var ErrChain = errors.New("proof: the checkpoints do not follow one another")

// signatureLine starts a signature line after the text of a note.
const signatureLine = "— "

// SplitCheckpoints cuts a text of checkpoints into notes, with or without an empty line between
// them and at the end. It verifies nothing. The error is ErrNote.
func SplitCheckpoints(text string) (notes []string, err error) {
	for text != "" {
		at := strings.Index(text, "\n\n"+signatureLine)
		if at < 0 {
			return nil, fmt.Errorf("%w: checkpoint %d has no signature", ErrNote, len(notes)+1)
		}
		end := at + len("\n\n")
		for strings.HasPrefix(text[end:], signatureLine) {
			n := strings.IndexByte(text[end:], '\n')
			if n < 0 {
				return nil, fmt.Errorf("%w: checkpoint %d is cut", ErrNote, len(notes)+1)
			}
			end += n + 1
		}
		notes = append(notes, text[:end])
		text = strings.TrimPrefix(text[end:], "\n")
	}
	return notes, nil
}

// KeptCheckpoint is a stored and verified checkpoint.
type KeptCheckpoint struct {
	Checkpoint
	// Key is the public key that has signed it.
	Key string
	// Text is the SHA-256 of its text, which the next one names as Previous.
	Text contract.Digest
}

// VerifyCheckpoints verifies checkpoints of one cluster, in any order: one of the public keys has
// signed each, and each but the first names the one before. It returns them in the order of the
// log, without repetitions.
//
// Errors are those of OpenCheckpoint for the first invalid one. ErrChain: two belong to different
// histories, or others between them are missing.
func VerifyCheckpoints(notes []string, publicKeys ...string) ([]KeptCheckpoint, error) {
	var all []KeptCheckpoint
	for i, note := range notes {
		kept, err := openKept(note, publicKeys)
		if err != nil && len(notes) > 1 {
			err = fmt.Errorf("checkpoint %d: %w", i+1, err)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, kept)
	}
	slices.SortStableFunc(all, func(a, b KeptCheckpoint) int { return cmp.Compare(a.Position, b.Position) })
	all = slices.CompactFunc(all, func(a, b KeptCheckpoint) bool { return a.Text == b.Text })
	for i := 1; i < len(all); i++ {
		if err := follows(&all[i-1], &all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func openKept(note string, publicKeys []string) (k KeptCheckpoint, err error) {
	c, key, err := OpenCheckpoint(note, publicKeys...)
	if err == nil {
		err = signedOnce(note)
	}
	if err == nil {
		k = KeptCheckpoint{Checkpoint: *c, Key: key}
		k.Text, err = TextDigest(note)
	}
	return k, err
}

// follows checks that one checkpoint is the next after another.
func follows(before, c *KeptCheckpoint) error {
	between := fmt.Sprintf("those of %s (position %d) and %s (position %d)",
		FormatTime(before.CompleteThrough), before.Position, FormatTime(c.CompleteThrough), c.Position)
	switch {
	case before.Cluster != c.Cluster:
		return fmt.Errorf("%w: they are of two clusters, %s and %s", ErrChain, KeyName(before.Cluster), KeyName(c.Cluster))
	case c.Position == before.Position, c.Previous == before.Previous, c.CompleteThrough < before.CompleteThrough:
		return fmt.Errorf("%w: %s are of two histories, and the cluster has signed both", ErrChain, between)
	case c.Previous != before.Text:
		return fmt.Errorf("%w: the later one of %s does not name the earlier one: there are others between them, or the history was replaced", ErrChain, between)
	}
	return nil
}
