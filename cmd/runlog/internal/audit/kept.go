package audit

import (
	"errors"
	"fmt"

	"runlog/audit/proof"
	"runlog/client/command/output"
	"runlog/cmd/internal/signingkey"
)

// keptNote is a checkpoint that the user has kept, as --since names it.
type keptNote struct {
	path, note string
	checkpoint *proof.Checkpoint // unverified
}

// readKept reads the file of --since: nil without one. Of several checkpoints it takes the one with
// the most records.
func readKept(path string) (*keptNote, error) {
	if path == "" {
		return nil, nil
	}
	e, err := openEvidence(path)
	if err != nil {
		return nil, err
	}
	defer e.file.Close()
	if !isCheckpoints(e.head) {
		return nil, output.UsageError("%s has no checkpoint: keep one with \"runlog audit checkpoints --limit 1 -o json\"", path)
	}
	found, err := readCheckpoints(e)
	if err != nil {
		return nil, output.UsageError("%s: %v", path, err)
	}
	var kept *keptNote
	for i := range found {
		c, _, err := proof.PeekCheckpoint(found[i].Note)
		if err != nil {
			return nil, output.UsageError("%s: %v", path, err)
		}
		if kept == nil || c.Size > kept.checkpoint.Size {
			kept = &keptNote{path, found[i].Note, c}
		}
	}
	return kept, nil
}

// named returns an error unless a file proves that the log continues this checkpoint.
func (k *keptNote) named(by *proof.KeptCheckpoint) error {
	if by == nil || by.Checkpoint != *k.checkpoint {
		return fmt.Errorf("it does not prove that the log continues the checkpoint in %s: write it again with --since %s", k.path, k.path)
	}
	return nil
}

// contradicted reports that a log is not shown to continue the kept checkpoint, with both notes.
func (a *app) contradicted(k *keptNote, later string, err error) error {
	fmt.Fprintf(a.Stderr, "the kept checkpoint, %s:\n\n%s\nthe later one:\n\n%s\n", k.path, k.note, later)
	return output.WithHint(output.Errorf(output.ExitRefused, "%v", err),
		"a cluster that has kept its log can prove that it continues each checkpoint that it has signed: ask another node, and "+
			"if none proves it, keep both notes above")
}

// keptError is the error of an answer that does not fit the checkpoint of --since, if there is one.
func (a *app) keptError(k *keptNote, later string, err error) error {
	switch {
	case errors.Is(err, proof.ErrContradiction):
		return a.contradicted(k, later, err)
	case k != nil && errors.Is(err, proof.ErrUnknownKey):
		return output.WithHint(output.Errorf(output.ExitRefused, "%v", err), signingkey.Hint(err))
	}
	return wrongAnswer(err)
}

// keptReport is the JSON form of a kept checkpoint that a log continues.
type keptReport struct {
	Origin          string `json:"origin"`
	CompleteThrough string `json:"completeThrough"`
	Records         uint64 `json:"records"`
	Root            string `json:"root"`
}

func reportKept(k *proof.KeptCheckpoint) *keptReport {
	if k == nil {
		return nil
	}
	return &keptReport{k.Origin(), proof.FormatTime(k.CompleteThrough), k.Size, fmt.Sprintf("%x", k.Root[:])}
}

// sinceText says what the proof against a kept checkpoint shows; empty: there is none.
func sinceText(k *proof.KeptCheckpoint) string {
	if k == nil {
		return ""
	}
	return fmt.Sprintf("the log continues the checkpoint of %s: its first %s were not changed, removed, added or moved since",
		proof.FormatTime(k.CompleteThrough), output.Plural(k.Size, "record"))
}
