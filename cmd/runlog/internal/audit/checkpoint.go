package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/audit/proof"
	"runlog/client"
	"runlog/client/command/output"
	"runlog/cmd/internal/signingkey"
	runlogv1 "runlog/proto/runlog/v1"
)

// maxCheckpoints bounds a file of checkpoints, in bytes. One checkpoint a minute for a year takes
// half of it.
const maxCheckpoints = 512 << 20

// checkpointLine begins a line of "runlog audit checkpoints -o json".
const checkpointLine = `{"note":"`

// isCheckpoints reports whether a file with these first bytes has checkpoints: signed notes, one
// with a proof of consistency, or the JSON lines that list them.
func isCheckpoints(head []byte) bool {
	line, _, _ := bytes.Cut(head, []byte("\n"))
	_, _, note := proof.ParseOrigin(string(line))
	return note || proof.IsConsistency(string(head)) || bytes.HasPrefix(head, []byte(checkpointLine))
}

// continued prints the newest checkpoint with the proof that it continues a kept one.
func (a *app) continued(ctx context.Context, c *client.Client, path string) error {
	since, err := readKept(path)
	if err != nil {
		return err
	}
	for newest, err := range c.ListCheckpoints(ctx, &runlogv1.ListCheckpointsRequest{PageSize: 1}) {
		if err != nil {
			return err
		}
		later, _, err := proof.PeekCheckpoint(newest.GetNote())
		if err != nil {
			return wrongAnswer(err)
		}
		made := proof.Consistency{From: since.checkpoint.Size, Note: newest.GetNote()}
		if made.From <= later.Size {
			resp, err := c.ProveConsistency(ctx, &runlogv1.ProveConsistencyRequest{OldSize: made.From, NewSize: later.Size})
			if err == nil {
				made.Hashes, err = proof.HashesOf(resp.GetHashes())
			}
			if err != nil {
				return err
			}
		}
		if err := proof.CheckConsistency(since.checkpoint, later, made.Hashes); err != nil {
			return a.keptError(since, made.Note, err)
		}
		_, err = io.WriteString(a.Stdout, made.Text())
		return err
	}
	return output.Errorf(output.ExitNotFound, "the cluster has no checkpoint yet")
}

// verifyCheckpoints verifies the checkpoints of some files, and with since, that one of them
// continues it.
func (a *app) verifyCheckpoints(files []*evidence, t *trust) error {
	since, keys := t.since, t.keys
	if len(keys) == 0 {
		return unverified(files[0].path + " is a signed checkpoint, which proves nothing without the cluster's public key")
	}
	var paths, notes []string
	var kept []proof.KeptCheckpoint
	var continues *proof.KeptCheckpoint
	for _, f := range files {
		own, err := readCheckpoints(f)
		if err != nil {
			return checkpointError(f.path, err)
		}
		var texts []string
		for i := range own {
			texts = append(texts, own[i].Note)
			if since != nil && own[i].Hashes != nil {
				if continues, err = a.verifyContinued(&own[i], since, keys); err != nil {
					return err
				}
			}
		}
		if kept, err = proof.VerifyCheckpoints(texts, keys...); err != nil {
			return checkpointError(f.path, err)
		}
		paths, notes = append(paths, f.path), append(notes, texts...)
	}
	if since != nil {
		if err := since.named(continues); err != nil {
			return output.Errorf(output.ExitRefused, "%s: %v", paths[0], err)
		}
	}
	if len(files) > 1 {
		var err error
		if kept, err = proof.VerifyCheckpoints(notes, keys...); err != nil {
			return checkpointError(strings.Join(paths, ", "), err)
		}
	}
	return a.reportCheckpoints(paths, kept, continues, t)
}

// verifyContinued verifies that a checkpoint continues a kept one, which it returns.
func (a *app) verifyContinued(c *proof.Consistency, since *keptNote, keys []string) (*proof.KeptCheckpoint, error) {
	kept, err := proof.OpenKept(since.note, keys...)
	if err != nil {
		return nil, checkpointError(since.path, err)
	}
	later, err := proof.OpenKept(c.Note, keys...)
	if err != nil {
		return nil, checkpointError("the later checkpoint", err)
	}
	if c.From != kept.Size {
		return nil, output.Errorf(output.ExitRefused, "the proof begins with a checkpoint of %s, and that in %s has %s", output.Plural(c.From, "record"),
			since.path, output.Plural(kept.Size, "record"))
	}
	if err := proof.CheckConsistency(&kept.Checkpoint, &later.Checkpoint, c.Hashes); err != nil {
		return nil, a.contradicted(since, c.Note, err)
	}
	return &kept, nil
}

func checkpointError(path string, err error) error {
	refused := output.Errorf(output.ExitRefused, "%s: %v", path, err)
	switch {
	case errors.Is(err, proof.ErrUnknownKey), errors.Is(err, proof.ErrUnsigned), errors.Is(err, proof.ErrSignature):
		return output.WithHint(refused, signingkey.Hint(err))
	case errors.Is(err, proof.ErrContradiction):
		return output.WithHint(refused, "keep both notes: with the cluster's key they show anybody that it has signed two logs under one name")
	}
	return refused
}

// readCheckpoints returns the signed notes of a file. Hashes is nil of those without a proof of
// consistency.
func readCheckpoints(f *evidence) ([]proof.Consistency, error) {
	if f.size > maxCheckpoints {
		return nil, fmt.Errorf("the file is larger than %s", output.Size(maxCheckpoints))
	}
	text, err := io.ReadAll(io.NewSectionReader(f.file, 0, f.size))
	if err != nil {
		return nil, err
	}
	var found []proof.Consistency
	switch {
	case proof.IsConsistency(string(text)):
		c, err := proof.ParseConsistency(string(text))
		if err != nil {
			return nil, err
		}
		c.Hashes = append([]tlog.Hash{}, c.Hashes...)
		return []proof.Consistency{*c}, nil
	case bytes.HasPrefix(text, []byte(checkpointLine)):
		for line := range bytes.Lines(text) {
			note, err := noteOf(line)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", len(found)+1, err)
			}
			found = append(found, proof.Consistency{Note: note})
		}
	default:
		notes, err := proof.SplitCheckpoints(string(text))
		if err != nil {
			return nil, err
		}
		for _, note := range notes {
			found = append(found, proof.Consistency{Note: note})
		}
	}
	return found, nil
}

// noteOf returns the note of a JSON line. The other fields must agree with the note, and the line
// must be written as it was printed. The opaque position is not part of the note.
func noteOf(line []byte) (string, error) {
	var said runlogv1.Checkpoint
	if err := protojson.Unmarshal(line, &said); err != nil {
		return "", errors.New("not a checkpoint as \"runlog audit checkpoints -o json\" prints it")
	}
	c, signers, err := proof.PeekCheckpoint(said.GetNote())
	if err != nil {
		return "", err
	}
	if len(signers) == 0 {
		return "", proof.ErrUnsigned
	}
	want, err := output.JSONLine(&runlogv1.Checkpoint{
		Note: said.GetNote(), Position: said.GetPosition(), CompleteThrough: &timestamppb.Timestamp{Seconds: c.CompleteThrough / 1e9, Nanos: int32(c.CompleteThrough % 1e9)},
		Runs: c.Runs, Records: c.Size, Root: fmt.Sprintf("%x", c.Root[:]), KeyId: signers[0][len(signers[0])-8:], Origin: c.Origin(),
	})
	if err == nil && !bytes.Equal(append(want, '\n'), line) {
		err = errors.New("its fields differ from its note, or it is not written as it was printed")
	}
	return said.GetNote(), err
}

// checkpointReport is the JSON form of verified checkpoints: the newest, and their number.
type checkpointReport struct {
	Files           []string    `json:"files"`
	Format          string      `json:"format"`
	Origin          string      `json:"origin"`
	Checkpoints     int         `json:"checkpoints"`
	CompleteThrough string      `json:"completeThrough"`
	Records         uint64      `json:"records"`
	Runs            uint64      `json:"runs"`
	Root            string      `json:"root"`
	Since           *keptReport `json:"since,omitempty"`
	Witnesses       string      `json:"witnesses,omitempty"`
	VerifiedKeys    []string    `json:"verifiedKeys"`
}

func (a *app) reportCheckpoints(paths []string, kept []proof.KeptCheckpoint, continues *proof.KeptCheckpoint, t *trust) error {
	last := &kept[0]
	var keys []string
	for i := range kept {
		if kept[i].CompleteThrough >= last.CompleteThrough {
			last = &kept[i]
		}
		if !slices.Contains(keys, kept[i].Key) {
			keys = append(keys, kept[i].Key)
		}
	}
	witnesses, err := t.witnessed(strings.Join(paths, ", "), last.Note)
	if err != nil {
		return err
	}
	report := checkpointReport{
		Files: paths, Witnesses: witnesses, Format: "checkpoint", Origin: last.Origin(), Checkpoints: len(kept), CompleteThrough: proof.FormatTime(last.CompleteThrough),
		Records: last.Size, Runs: last.Runs, Root: fmt.Sprintf("%x", last.Root[:]), Since: reportKept(continues), VerifiedKeys: keys,
	}
	number := "1"
	if len(kept) > 1 {
		number = output.Number(uint64(len(kept))) + ", which do not contradict one another by what they say"
	}
	return a.Show(report,
		[2]string{"File", strings.Join(paths, ", ")},
		[2]string{"Format", "signed checkpoint"},
		[2]string{"Origin", last.Origin()},
		[2]string{"Checkpoints", number},
		[2]string{"Newest", fmt.Sprintf("of %s, position %d in the log: %s of %s", proof.FormatTime(last.CompleteThrough), last.Position,
			output.Plural(last.Size, "record"), output.Plural(last.Runs, "run"))},
		[2]string{"Root", fmt.Sprintf("%x", last.Root[:])},
		[2]string{"Since", sinceText(continues)},
		[2]string{"Witnesses", witnesses},
		[2]string{"Signature", "verified, by " + strings.Join(keys, ", ")},
	)
}
