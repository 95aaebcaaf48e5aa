package witness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"runlog/audit/proof"
)

var (
	// ErrUnreachable means that a witness gave no answer that one could have given.
	ErrUnreachable = errors.New("witness: no answer")
	// ErrConflict means that a witness says that it has signed a tree of the log that the
	// checkpoint does not continue: another one, or a larger one.
	ErrConflict = errors.New("witness: it has signed another tree of this log")
	// ErrRefused means that a witness does not sign the checkpoint.
	ErrRefused = errors.New("witness: it does not sign")
)

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 16 << 10

// Client asks a witness to sign checkpoints.
type Client struct {
	// URL of the witness, to which /add-checkpoint is added.
	URL string
	// Key is the witness's public key, without which its signatures are not taken.
	Key *proof.WitnessKey
	// HTTP makes the requests. It needs a time limit, or the context one.
	HTTP *http.Client
}

// Cosign returns the signature line of the witness for a signed checkpoint. from is the size that
// the witness is believed to have; prove returns the proof that the checkpoint continues a size. If
// the witness has another size, Cosign asks once more. Errors: ErrUnreachable, ErrConflict,
// ErrRefused, and those of prove.
func (c *Client) Cosign(
	ctx context.Context, note string, from uint64, prove func(ctx context.Context, earlier, later uint64) ([]tlog.Hash, error),
) (line string, err error) {
	later, _, err := proof.PeekCheckpoint(note)
	if err != nil {
		return "", err
	}
	for try := 0; ; try++ {
		hashes, err := prove(ctx, from, later.Size)
		if err != nil {
			return "", err
		}
		whole := from == later.Size
		line, size, err := c.add(ctx, &proof.Consistency{From: from, Hashes: hashes, Note: note})
		switch {
		case err != nil || line != "":
			return line, err
		case size > later.Size, whole && size == from:
			return "", fmt.Errorf("%w: it has %d records, and the checkpoint has %d", ErrConflict, size, later.Size)
		case try > 0 || size == from:
			return "", fmt.Errorf("%w: it says that it has %d records after it was given a proof from %d on", ErrRefused, size, from)
		}
		from = size
	}
}

// add sends a checkpoint. It returns the signature line, or the size that the witness has.
func (c *Client) add(ctx context.Context, body *proof.Consistency) (line string, size uint64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(c.URL, "/")+addPath, strings.NewReader(body.Text()))
	if err != nil {
		return "", 0, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return "", 0, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return "", 0, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	text := string(raw)
	switch {
	case resp.StatusCode == http.StatusOK:
		found, err := proof.Cosignatures(body.Note+text, c.Key)
		if err == nil && len(found) == 0 {
			err = errors.New("the answer has no signature of its key")
		}
		if err != nil {
			return "", 0, fmt.Errorf("%w: %w", ErrRefused, err)
		}
		return found[0].Line, 0, nil
	case resp.StatusCode == http.StatusConflict && resp.Header.Get("Content-Type") == typeSize:
		size, err := strconv.ParseUint(strings.TrimSuffix(text, "\n"), 10, 63)
		if err != nil {
			return "", 0, fmt.Errorf("%w: %q is no size", ErrRefused, text)
		}
		return "", size, nil
	case resp.StatusCode == http.StatusUnprocessableEntity && body.From > 0:
		// The proof does not begin with the tree that the witness has of that size.
		return "", 0, fmt.Errorf("%w: %.200s", ErrConflict, text)
	case resp.StatusCode >= http.StatusInternalServerError:
		return "", 0, fmt.Errorf("%w: %s", ErrUnreachable, resp.Status)
	default:
		return "", 0, fmt.Errorf("%w: %s: %.200s", ErrRefused, resp.Status, text)
	}
}
