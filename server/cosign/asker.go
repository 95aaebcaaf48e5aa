package cosign

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"runlog/audit/proof"
	"runlog/audit/witness"
	"runlog/storage"
	"runlog/storage/machine/signing"
)

// asker asks one witness. All of it belongs to its goroutine.
type asker struct {
	opts   *Options
	name   string
	client witness.Client
	report *report
	log    *slog.Logger
	state
}

// state is what the asker of a leader knows. It begins afresh with each leadership.
type state struct {
	// origin is the log that has is about.
	origin string
	// has is how many records the witness is believed to have signed. A witness with another number
	// answers with it, so a new leader begins with 0.
	has uint64
	// unsigned is since when there has been a checkpoint that the witness has not signed; zero: it
	// has signed the newest.
	unsigned time.Time
	// conflict is set while the last answer of the witness contradicts the log.
	conflict bool
	failed   bool // the last request failed, and that was logged
	wait     time.Duration
	next     time.Time // of the next request
}

func (a *asker) run(ctx context.Context) {
	ticker := time.NewTicker(step)
	defer ticker.Stop()
	for {
		a.look(ctx)
		a.report.set(a.name, &a.state)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// look asks the witness to sign the newest checkpoint, unless it has, or is to be left alone yet.
func (a *asker) look(ctx context.Context) {
	if !a.opts.Leading() {
		a.state = state{}
		return
	}
	c, claimed, err := a.newest()
	switch {
	case err != nil:
		a.failure(ctx, err)
	case claimed == nil:
	case slices.ContainsFunc(c.Cosignatures, func(s signing.Cosignature) bool { return s.Key == a.client.Key.ID() }):
		a.signed(claimed)
	default:
		if a.unsigned.IsZero() {
			a.unsigned = time.Now()
		}
		if time.Now().Before(a.next) {
			return
		}
		if err := a.ask(ctx, &c, claimed); err != nil {
			a.failure(ctx, err)
			return
		}
		a.report.answered(a.name, resultSigned)
		a.log.Debug("witness signed", "records", claimed.Size)
		a.signed(claimed)
	}
}

// newest returns the newest checkpoint of the log, in the store and parsed; nil: there is none yet.
// After a recovery the last one is of the log before.
func (a *asker) newest() (signing.Checkpoint, *proof.Checkpoint, error) {
	c, err := signing.LastCheckpoint(a.opts.Store)
	if err != nil || c.Position == 0 {
		return c, nil, err
	}
	claimed, _, err := proof.PeekCheckpoint(c.Note)
	if err != nil || claimed.Incarnation != a.opts.Store.Incarnation() {
		return c, nil, err
	}
	return c, claimed, nil
}

// ask has the witness sign a checkpoint, and stores the signature.
func (a *asker) ask(ctx context.Context, c *signing.Checkpoint, claimed *proof.Checkpoint) error {
	if a.origin != claimed.Origin() || a.has > claimed.Size {
		a.origin, a.has = claimed.Origin(), 0
	}
	line, err := a.client.Cosign(ctx, c.Note, a.has, a.opts.Prove)
	if errors.Is(err, witness.ErrConflict) {
		return a.judge(ctx, c, err)
	}
	if err != nil {
		return err
	}
	cmd, err := storage.EncodeOne(signing.StoreCosignature(c.Position, signing.Cosignature{Key: a.client.Key.ID(), Line: line}))
	if err != nil {
		return err
	}
	outcome, err := a.opts.Propose(ctx, cmd)
	return errors.Join(err, outcome.Err)
}

// errOvertaken means that the witness may have signed a later checkpoint, which this node did not
// have when it asked.
var errOvertaken = errors.New("cosign: another leader may have asked meanwhile")

// judge returns conflict if this node leads, and the checkpoint is still the newest one. A leader
// that was deposed without knowing it has an older one, which looks like another history to a
// witness that has signed its successor's. It returns errOvertaken then.
func (a *asker) judge(ctx context.Context, c *signing.Checkpoint, conflict error) error {
	if err := a.opts.ReadIndex(ctx); err != nil {
		return fmt.Errorf("%w: %w", errOvertaken, err)
	}
	now, _, err := a.newest()
	if err != nil {
		return err
	}
	if now.Position != c.Position || !a.opts.Leading() {
		return errOvertaken
	}
	return conflict
}

// signed notes that the witness has signed the newest checkpoint.
func (a *asker) signed(c *proof.Checkpoint) {
	if a.failed {
		a.log.Info("witness signs again", "records", c.Size)
	}
	a.state = state{origin: c.Origin(), has: c.Size}
}

// failure notes that the witness has not signed, and when it is asked again.
func (a *asker) failure(ctx context.Context, err error) {
	if ctx.Err() != nil || errors.Is(err, errOvertaken) {
		return
	}
	a.report.answered(a.name, resultOf(err))
	// What a witness that cannot be reached has said before still holds.
	if conflict := errors.Is(err, witness.ErrConflict); conflict || !errors.Is(err, witness.ErrUnreachable) {
		if conflict && !a.conflict {
			a.log.Error("witness says that it has signed another history of the log", "alert", AlertConflict, "url", a.client.URL, "err", err,
				"do", "keep the newest checkpoint (runlog audit checkpoints), and ask the operator of the witness for the one that it has")
		}
		a.conflict = conflict
	}
	if !a.failed && !a.conflict {
		a.log.Warn("witness does not sign; retrying", "url", a.client.URL, "err", err)
	}
	a.failed = true
	a.wait = min(max(2*a.wait, firstRetry), lastRetry)
	a.next = time.Now().Add(a.wait)
}
