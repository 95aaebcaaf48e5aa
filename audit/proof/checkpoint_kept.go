package proof

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

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
	// Note is the checkpoint with its signatures.
	Note string
}

// OpenKept verifies a stored checkpoint. Errors are those of OpenCheckpoint.
func OpenKept(note string, publicKeys ...string) (k KeptCheckpoint, err error) {
	c, key, err := OpenCheckpoint(note, publicKeys...)
	if err != nil {
		return k, err
	}
	return KeptCheckpoint{*c, key, note}, nil
}

// VerifyCheckpoints verifies checkpoints, in any order: one of the public keys has signed each, and
// no two of one log contradict one another by what they say. It returns them by origin and size,
// without repetitions.
//
// That does not show that one continues another: CheckConsistency does. Errors are those of
// OpenCheckpoint for the first invalid one. ErrContradiction: two are of one size and have
// different roots, or the one with more records is of an earlier position or time.
func VerifyCheckpoints(notes []string, publicKeys ...string) ([]KeptCheckpoint, error) {
	var all []KeptCheckpoint
	for i, note := range notes {
		kept, err := OpenKept(note, publicKeys...)
		if err != nil && len(notes) > 1 {
			err = fmt.Errorf("checkpoint %d: %w", i+1, err)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, kept)
	}
	slices.SortStableFunc(all, func(a, b KeptCheckpoint) int {
		return cmp.Or(strings.Compare(a.Origin(), b.Origin()), cmp.Compare(a.Size, b.Size), cmp.Compare(a.Position, b.Position))
	})
	all = slices.CompactFunc(all, func(a, b KeptCheckpoint) bool { return a.Checkpoint == b.Checkpoint })
	for i := 1; i < len(all); i++ {
		if err := all[i-1].agrees(&all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// agrees compares what two checkpoints of one log say. next has as many records, or more.
func (k *KeptCheckpoint) agrees(next *KeptCheckpoint) error {
	if k.Origin() != next.Origin() {
		return nil
	}
	between := fmt.Sprintf("%s has signed one of %s (%d records, position %d) and one of %s (%d records, position %d)", k.Origin(),
		FormatTime(k.CompleteThrough), k.Size, k.Position, FormatTime(next.CompleteThrough), next.Size, next.Position)
	switch {
	case k.Size == next.Size && k.Root != next.Root:
		return fmt.Errorf("%w: %s, with different roots: records were changed", ErrContradiction, between)
	case k.Position >= next.Position && k.Size < next.Size, k.CompleteThrough > next.CompleteThrough,
		k.Runs > next.Runs, k.Position == next.Position && k.Checkpoint != next.Checkpoint:
		return fmt.Errorf("%w: %s, which cannot both be of one log", ErrContradiction, between)
	}
	return nil
}
