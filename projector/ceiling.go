package projector

import (
	"math"
	"sync/atomic"

	"runlog/storage"
)

// ceiling is a bound on the position up to which a projector folds. A rebuild raises it. nil bounds
// nothing.
type ceiling struct{ at atomic.Uint64 }

// unbounded is the ceiling of a projector that follows the log.
const unbounded = storage.Position(math.MaxUint64)

// cap returns the lower one of a position and the ceiling.
func (c *ceiling) cap(p storage.Position) storage.Position {
	if c == nil {
		return p
	}
	return min(p, storage.Position(c.at.Load()))
}

// below reports whether the ceiling is below a position.
func (c *ceiling) below(p storage.Position) bool { return c.cap(p) < p }

// raise moves the ceiling of a projector up.
func (p *Projector) raise(to storage.Position) {
	p.opts.ceiling.at.Store(uint64(to))
	p.wakeUp()
}
