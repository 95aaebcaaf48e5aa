package projector

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"runlog/storage"
)

// watermark is a stored watermark.
type watermark struct {
	format   uint8
	position storage.Position
	tables   string
}

// watermarks reads the watermarks by the names of their projections.
func (d *database) watermarks() (map[string]watermark, error) {
	it, err := d.db.NewIter(&pebble.IterOptions{LowerBound: []byte{tableMark}, UpperBound: []byte{tableMark + 1}})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errProjection, err)
	}
	marks := map[string]watermark{}
	for it.First(); it.Valid(); it.Next() {
		// A watermark that cannot be read is that of a projection to rebuild.
		var m watermark
		if row := it.Value(); len(row) > markSize {
			m = watermark{
				format:   row[0],
				position: storage.Position(binary.BigEndian.Uint64(row[1:])),
				tables:   string(row[markSize:]),
			}
		}
		marks[string(it.Key()[1:])] = m
	}
	if err := it.Close(); err != nil {
		return nil, fmt.Errorf("%w: %w", errProjection, err)
	}
	return marks, nil
}

// arrange finds out which projections are in step with a database that was just opened, and which
// are behind. It empties the tables of those that are new or have changed, and of those that the
// projector does not have any more. The caller holds disk, or is Open.
func (p *Projector) arrange(d *database) error {
	marks, err := d.watermarks()
	if err != nil {
		return err
	}
	w := d.write()
	defer w.close()
	for _, pr := range p.projections {
		m, known := marks[pr.Name]
		delete(marks, pr.Name)
		pr.behind, pr.position = false, 0
		switch whole := d.opened.newest; {
		case known && m.format == pr.Format && m.tables == pr.Tables:
			if pr == p.runs {
				whole = d.opened.from // what is newer is folded again
			}
			pr.behind, pr.position = m.position < whole, m.position
		case whole > 0 || known:
			p.opts.Logger.Info("projection is new or of another format; rebuilding it", "projection", pr.Name)
			d.empty(w, m.tables+pr.Tables)
			w.mark(pr, 0)
			pr.behind = whole > 0
		}
	}
	for name, m := range marks {
		p.opts.Logger.Info("projection does not exist any more; deleting its tables", "projection", name)
		d.empty(w, m.tables)
		if w.err == nil {
			w.err = w.batch.Delete(append([]byte{tableMark}, name...), nil)
		}
	}
	if err := w.apply(); err != nil {
		return err
	}
	clear(p.more)
	d.written = d.opened.from
	p.serveAt(d)
	return nil
}

// empty deletes the rows of tables that can be those of projections.
func (d *database) empty(w *write, tables string) {
	for i := range len(tables) {
		if t := tables[i : i+1]; !strings.Contains(tailTables, t) {
			w.clear(t)
		}
	}
}

// serveAt notes the positions up to which the projections have the log. Only the goroutine of run
// calls it, or Open.
func (p *Projector) serveAt(d *database) {
	for _, pr := range p.projections {
		at := d.written
		if pr.behind {
			at = pr.position
		}
		pr.at.Store(uint64(at))
	}
}
