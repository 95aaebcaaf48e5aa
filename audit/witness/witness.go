package witness

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"runlog/audit/internal/durable"
	"runlog/audit/proof"
)

const (
	addPath  = "/add-checkpoint"
	typeSize = "text/x.tlog.size"
	// maxBody is more than a checkpoint with a proof and hundreds of signatures has, in bytes.
	maxBody = 1 << 20
)

// Options configure a Witness. All are required.
type Options struct {
	Cosigner *proof.Cosigner
	// Logs are the public keys of the clusters that it follows, in their text form.
	Logs []string
	// State is the path of the file with the kept checkpoints.
	State  string
	Clock  func() time.Time
	Logger *slog.Logger
}

// Witness is a witness, and its HTTP handler. Close ends it.
type Witness struct {
	opts  Options
	lock  io.Closer
	write func(path string, text []byte) error // durable.Write, but in tests

	mu   sync.Mutex
	kept kept
}

// New opens the state of a witness. Errors: proof.ErrKey, ErrState, ErrLocked, and those of the
// file system.
func New(opts Options) (*Witness, error) {
	for _, key := range opts.Logs {
		if _, err := proof.KeyID(key); err != nil {
			return nil, err
		}
		if _, ok := proof.ClusterOf(key); !ok {
			return nil, fmt.Errorf("%w: %q is no key of a cluster", proof.ErrKey, key)
		}
	}
	lock, err := lockFile(opts.State + ".lock")
	if err != nil {
		return nil, err
	}
	w := &Witness{opts: opts, lock: lock, write: durable.Write}
	if w.kept, err = readKept(opts.State); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return w, nil
}

// Close gives the state back. All requests must have ended.
func (w *Witness) Close() error { return w.lock.Close() }

// ServeHTTP implements http.Handler.
func (w *Witness) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path != addPath:
		http.Error(rw, "a witness has "+addPath+" alone", http.StatusNotFound)
		return
	case r.Method != http.MethodPost:
		rw.Header().Set("Allow", http.MethodPost)
		http.Error(rw, "send a checkpoint with POST", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, maxBody))
	if err != nil {
		http.Error(rw, "the body could not be read: "+err.Error(), http.StatusBadRequest)
		return
	}
	line, err := w.Add(string(body))
	var refused *Refusal
	switch {
	case err == nil:
		rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(rw, line) // A client that is gone does not need it.
	case errors.As(err, &refused) && refused.Status == http.StatusConflict:
		rw.Header().Set("Content-Type", typeSize)
		rw.WriteHeader(refused.Status)
		_, _ = io.WriteString(rw, strconv.FormatUint(refused.Size, 10)+"\n")
	case errors.As(err, &refused):
		http.Error(rw, refused.Error(), refused.Status)
	default:
		w.opts.Logger.Error("cannot keep a checkpoint; nothing was signed", "err", err)
		http.Error(rw, "the checkpoint could not be kept", http.StatusInternalServerError)
	}
}

// Refusal says why a witness does not sign a checkpoint.
type Refusal struct {
	// Status is that of HTTP, as C2SP tlog-witness has it.
	Status int
	// Size is that of the kept checkpoint, with StatusConflict.
	Size  uint64
	Cause error
}

func (r *Refusal) Error() string { return "witness: " + r.Cause.Error() }
func (r *Refusal) Unwrap() error { return r.Cause }

func refuse(status int, cause error) error { return &Refusal{Status: status, Cause: cause} }

// Add verifies a checkpoint with the proof that it continues the kept one, in the form of
// proof.Consistency, keeps it, and returns the signature line. The error is a *Refusal, or that of
// the file system.
func (w *Witness) Add(body string) (line string, err error) {
	c, err := proof.ParseConsistency(body)
	if err != nil {
		return "", refuse(http.StatusBadRequest, err)
	}
	if origin, _, ok := strings.Cut(c.Note, "\n"); ok && !w.follows(origin) {
		return "", refuse(http.StatusNotFound, fmt.Errorf("%q is not followed here", origin))
	}
	if _, _, err := proof.PeekCheckpoint(c.Note); err != nil {
		return "", refuse(http.StatusBadRequest, err)
	}
	next, err := proof.OpenKept(c.Note, w.opts.Logs...)
	switch {
	case err != nil:
		return "", refuse(http.StatusForbidden, err)
	case c.From > next.Size:
		return "", refuse(http.StatusBadRequest, fmt.Errorf("a proof from %d records to %d", c.From, next.Size))
	}
	if empty, err := tlog.TreeHash(0, nil); next.Size == 0 && next.Root != empty {
		return "", refuse(http.StatusUnprocessableEntity, errors.Join(err, errors.New("the root is not that of an empty tree")))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.keepLocked(c, &next); err != nil {
		return "", err
	}
	return w.opts.Cosigner.Cosign(c.Note, w.opts.Clock())
}

// follows reports whether the witness has a key of the cluster whose log it is. Logs of others have
// checkpoints of other forms, so the origin is all that is read of one that is not followed.
func (w *Witness) follows(origin string) bool {
	of, _, ok := proof.ParseOrigin(origin)
	return ok && slices.ContainsFunc(w.opts.Logs, func(key string) bool {
		cluster, ok := proof.ClusterOf(key)
		return ok && cluster == of
	})
}

// keepLocked keeps a checkpoint that continues the kept one of its log.
func (w *Witness) keepLocked(c *proof.Consistency, next *proof.KeptCheckpoint) error {
	origin := next.Origin()
	before, known := w.kept[origin]
	switch {
	case c.From != before.Size:
		return &Refusal{http.StatusConflict, before.Size, fmt.Errorf("the proof begins with %d records, and the witness has %d", c.From, before.Size)}
	case known && before.Size == next.Size && before.Root != next.Root:
		w.opts.Logger.Error("log has signed two trees of one size", "alert", "WITNESS_CONFLICT", "origin", origin, "records", next.Size,
			"kept", before.Note, "other", next.Note)
		return refuse(http.StatusUnprocessableEntity, proof.ErrContradiction)
	}
	if err := proof.CheckConsistency(&before.Checkpoint, &next.Checkpoint, c.Hashes); err != nil {
		return refuse(http.StatusUnprocessableEntity, err)
	}
	if known && before.Checkpoint == next.Checkpoint {
		return nil
	}
	text, err := w.kept.with(origin, *next).text()
	if err == nil {
		err = w.write(w.opts.State, text)
	}
	if err != nil {
		return fmt.Errorf("witness: keep the checkpoint of %s: %w", origin, err)
	}
	w.kept = w.kept.with(origin, *next)
	return nil
}
