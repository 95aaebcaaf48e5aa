package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"runlog/client/command/output"
	"runlog/cmd/internal/signingkey"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	"runlog/audit/proof"
	runlogv1 "runlog/proto/runlog/v1"
)

// maxCheckpoints bounds a file of checkpoints, in bytes. One checkpoint a minute for a year takes
// half of it.
const maxCheckpoints = 512 << 20

// checkpointLine begins a line of "runlog audit checkpoints -o json".
const checkpointLine = `{"note":"`

// isCheckpoints reports whether a file with these first bytes has checkpoints: signed notes, or the
// JSON lines that list them.
func isCheckpoints(head []byte) bool {
	line, _, _ := bytes.Cut(head, []byte("\n"))
	_, note := proof.ClusterOf(string(line))
	return note || bytes.HasPrefix(head, []byte(checkpointLine))
}

// verifyCheckpoints verifies the checkpoints of some files, and that each names the one before.
func (a *app) verifyCheckpoints(files []*evidence, keys []string) error {
	if len(keys) == 0 {
		return unverified(files[0].path + " is a signed checkpoint, which proves nothing without the cluster's public key")
	}
	var paths, notes []string
	var kept []proof.KeptCheckpoint
	for _, f := range files {
		own, err := readCheckpoints(f)
		if err == nil {
			kept, err = proof.VerifyCheckpoints(own, keys...)
		}
		if err != nil {
			return checkpointError(f.path, err)
		}
		paths, notes = append(paths, f.path), append(notes, own...)
	}
	if len(files) > 1 {
		var err error
		if kept, err = proof.VerifyCheckpoints(notes, keys...); err != nil {
			return checkpointError(strings.Join(paths, ", "), err)
		}
	}
	return a.reportCheckpoints(paths, kept)
}

func checkpointError(path string, err error) error {
	refused := output.Errorf(output.ExitRefused, "%s: %v", path, err)
	switch {
	case errors.Is(err, proof.ErrUnknownKey), errors.Is(err, proof.ErrUnsigned), errors.Is(err, proof.ErrSignature):
		return output.WithHint(refused, signingkey.Hint(err))
	case errors.Is(err, proof.ErrChain):
		return output.WithHint(refused, "\"runlog audit checkpoints --limit 0 -o json\" lists all")
	}
	return refused
}

// readCheckpoints returns the signed notes of a file.
func readCheckpoints(f *evidence) ([]string, error) {
	if f.size > maxCheckpoints {
		return nil, fmt.Errorf("the file is larger than %s", output.Size(maxCheckpoints))
	}
	text, err := io.ReadAll(io.NewSectionReader(f.file, 0, f.size))
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(text, []byte(checkpointLine)) {
		return proof.SplitCheckpoints(string(text))
	}
	var notes []string
	for line := range bytes.Lines(text) {
		note, err := noteOf(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", len(notes)+1, err)
		}
		notes = append(notes, note)
	}
	return notes, nil
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
		Runs: c.Runs, Events: c.Events, Root: fmt.Sprintf("%x", c.Root[:]), KeyId: signers[0][len(signers[0])-8:],
	})
	if err == nil && !bytes.Equal(append(want, '\n'), line) {
		err = errors.New("its fields differ from its note, or it is not written as it was printed")
	}
	return said.GetNote(), err
}

// checkpointReport is the JSON form of verified checkpoints: the newest, and their number.
type checkpointReport struct {
	Files           []string `json:"files"`
	Format          string   `json:"format"`
	ClusterID       string   `json:"clusterId"`
	Checkpoints     int      `json:"checkpoints"`
	From            string   `json:"from"`
	CompleteThrough string   `json:"completeThrough"`
	Runs            uint64   `json:"runs"`
	Events          uint64   `json:"events"`
	Root            string   `json:"root"`
	Previous        string   `json:"previous"`
	VerifiedKeys    []string `json:"verifiedKeys"`
}

func (a *app) reportCheckpoints(paths []string, kept []proof.KeptCheckpoint) error {
	first, last := &kept[0], &kept[len(kept)-1]
	var keys []string
	for _, c := range kept {
		if !slices.Contains(keys, c.Key) {
			keys = append(keys, c.Key)
		}
	}
	report := checkpointReport{
		Files: paths, Format: "checkpoint", ClusterID: fmt.Sprintf("%x", last.Cluster), Checkpoints: len(kept), From: proof.FormatTime(first.CompleteThrough),
		CompleteThrough: proof.FormatTime(last.CompleteThrough), Runs: last.Runs, Events: last.Events, Root: fmt.Sprintf("%x", last.Root[:]),
		Previous: first.Previous.String(), VerifiedKeys: keys,
	}
	chain := "1"
	if len(kept) > 1 {
		chain = fmt.Sprintf("%s, from that of %s on; each names the one before", output.Number(uint64(len(kept))), proof.FormatTime(first.CompleteThrough))
	}
	return a.Show(report,
		[2]string{"File", strings.Join(paths, ", ")},
		[2]string{"Format", "signed checkpoint"},
		[2]string{"Cluster", fmt.Sprintf("%x", last.Cluster)},
		[2]string{"Checkpoints", chain},
		[2]string{"Newest", fmt.Sprintf("of %s, position %d in the log: %s of %s", proof.FormatTime(last.CompleteThrough), last.Position,
			output.Plural(last.Events, "event"), output.Plural(last.Runs, "run"))},
		[2]string{"Root", fmt.Sprintf("%x", last.Root[:])},
		[2]string{"Previous", first.Previous.String()},
		[2]string{"Signature", "verified, by " + strings.Join(keys, ", ")},
	)
}
