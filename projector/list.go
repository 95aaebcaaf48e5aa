package projector

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"runlog/projector/list"
	"runlog/projector/run"
	"runlog/storage"
)

// List returns a page of at most limit runs in the filter's order. It begins at a place that an
// earlier page returned; nil: at the first run.
func (p *Projector) List(f run.Filter, from []byte, limit int) (page list.Page, err error) {
	page.Position, err = p.read(p.list, func(r pebble.Reader) error {
		page.Runs, page.Next, err = list.Read(r, &f, from, limit)
		return err
	})
	if err != nil {
		return list.Page{}, err
	}
	return page, nil
}

// Count returns the number of runs that a filter selects, at most limit, and the position up to
// which, at least, it counts them. more reports whether there are, or may be, others.
func (p *Projector) Count(f run.Filter, limit int) (n int, more bool, at storage.Position, err error) {
	at, err = p.read(p.list, func(r pebble.Reader) error {
		n, more, err = list.Count(r, &f, limit)
		return err
	})
	return n, more, at, err
}

// Read lets a caller read the tables of a projection. It returns the position up to which, at
// least, they had the log. It reports an error of the reader as a fault of the database, which is
// then rebuilt. The reader is valid until read returns.
func (p *Projector) Read(name string, read func(pebble.Reader) error) (storage.Position, error) {
	pr, err := p.projection(name)
	if err != nil {
		return 0, err
	}
	return p.read(pr, read)
}

func (p *Projector) read(pr *projection, read func(pebble.Reader) error) (storage.Position, error) {
	p.disk.RLock()
	defer p.disk.RUnlock()
	if p.disk.db == nil {
		return 0, ErrRemaking
	}
	// Rows are written before the position moves.
	at := storage.Position(pr.at.Load())
	if err := read(p.disk.db.db); err != nil {
		if !errors.Is(err, errProjection) {
			err = fmt.Errorf("%w: %w", errProjection, err)
		}
		p.disk.db.damaged(err)
		return 0, fmt.Errorf("%w: %w", ErrRemaking, err)
	}
	return at, nil
}

// ErrRemaking means that the database was damaged and is not open again yet, or that the projector
// was closed. A reader tries again.
var ErrRemaking = fmt.Errorf("%w: is being rebuilt from the log; try again", errProjection)
