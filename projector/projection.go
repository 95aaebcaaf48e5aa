package projector

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"runlog/projector/list"
	"runlog/projector/run"
	"runlog/projector/seen"
	"runlog/projector/usage"
	"runlog/storage"
)

// Projection is a fold of the log into tables of its own (a materialized view). All projections
// share one tail of the log and one database. Each has a watermark and a format of its own: a
// projection that is new, or whose format or tables have changed, is rebuilt alone from the log.
// The others continue meanwhile.
type Projection struct {
	// Name identifies the projection in its database. Required.
	Name string
	// Format changes with the tables and with their meaning.
	Format uint8
	// Tables are the first bytes of the projection's keys. No two projections share one. Required.
	Tables string
	// Fold takes a commit into the tables. It is called with every commit, in log order. nil: the
	// projection folds changes of runs only.
	Fold func(tx *Tx, c *storage.Commit) error
	// FoldRun takes the change of a run into the tables. It is called once a round for each run
	// that the round has changed, in any order, after the commits. nil: the projection folds
	// commits only.
	//
	// While a projection catches up, it is called with the newest snapshot of each run, and
	// Change.Behind is set.
	FoldRun func(tx *Tx, c *run.Change) error
	// Write takes into the tables what the functions above keep in memory. It is called each time
	// before rows are written: once for all commits that share a write. nil: they keep nothing.
	Write func(tx *Tx) error
	// Ahead are those of Tables that may have more than the log up to the watermark. A rebuild does
	// not compare them.
	Ahead string
}

// The names of the projections that every projector has.
const (
	nameRuns = "runs"
	nameList = "list"
	nameSeen = "seen"
)

// projection is a Projection with its state.
//
// It is in step with the tail, or it is behind: then catchUp folds it, and position is its
// watermark. Only the goroutine of run uses these two, and Open before it.
type projection struct {
	Projection
	behind   bool
	position storage.Position
	// at is the position up to which the tables have the log. run moves it when they have, so a
	// reader that loads it first finds at least that much in the tables, unless another database
	// replaces them meanwhile.
	at atomic.Uint64
}

// newProjections returns the run snapshots, the list, the values that were seen, what tenants have
// stored, the tree of records, and the projections of the options.
func newProjections(o *Options) ([]*projection, error) {
	var all []*projection
	own := []Projection{
		runsProjection(), listProjection(), seenProjection(), usageProjection(), treeProjection(o.Store),
	}
	for _, pr := range append(own, o.Projections...) {
		all = append(all, &projection{Projection: pr})
	}
	return all, checkProjections(all)
}

// checkProjections reports a name or a table with two owners.
func checkProjections(all []*projection) error {
	names, tables := map[string]bool{}, map[byte]string{}
	for i := range tailTables {
		tables[tailTables[i]] = "the tail"
	}
	for _, pr := range all {
		if pr.Name == "" || pr.Tables == "" {
			return fmt.Errorf("projector: projection %q: Name or Tables is empty", pr.Name)
		}
		if names[pr.Name] {
			return fmt.Errorf("projector: two projections have the name %q; rename one", pr.Name)
		}
		names[pr.Name] = true
		for i := range len(pr.Tables) {
			t := pr.Tables[i]
			if owner, taken := tables[t]; taken {
				return fmt.Errorf("projector: table %q is claimed by %s and by %s; give one another table",
					pr.Tables[i:i+1], owner, pr.Name)
			}
			tables[t] = pr.Name
		}
	}
	return nil
}

// listProjection is the list of runs.
func listProjection() Projection {
	var f list.Folder
	return Projection{Name: nameList, Format: list.Format, Tables: list.Tables, Ahead: list.LabelTables,
		Fold:    func(tx *Tx, c *storage.Commit) error { return ofList(f.FoldLabels(tx, c)) },
		FoldRun: func(tx *Tx, c *run.Change) error { return ofList(f.Fold(tx, c)) },
	}
}

// seenProjection is the values that events have ever had.
func seenProjection() Projection {
	var f seen.Folder
	return Projection{Name: nameSeen, Format: seen.Format, Tables: seen.Tables,
		Fold: func(tx *Tx, c *storage.Commit) error { return f.Fold(tx, c) },
	}
}

// usageProjection is what the tenants have stored.
func usageProjection() Projection {
	var f usage.Folder
	return Projection{Name: usage.Name, Format: usage.Format, Tables: usage.Tables,
		Fold: func(tx *Tx, c *storage.Commit) error { return f.Fold(tx, c) },
	}
}

// ofList makes a damaged row of the list a fault of the database.
func ofList(err error) error {
	if errors.Is(err, list.ErrDamaged) {
		err = fmt.Errorf("%w: %w", errProjection, err)
	}
	return err
}

// runsProjection is the run snapshots. In step, they live in memory and are stored later (see
// round.store). While they are rebuilt, FoldRun stores the snapshots that are missing.
func runsProjection() Projection {
	var e run.Encoder
	return Projection{Name: nameRuns, Format: run.StoredFormat, Tables: string(tableSnapshot),
		FoldRun: func(tx *Tx, c *run.Change) error {
			if !c.Behind || c.Now.LastEventSeq == 0 {
				return nil
			}
			key := snapshotKey(c.Run.RunID)
			// A row that is there was stored by a round since, and is at least as new.
			row, err := tx.Get(key)
			if err == nil && row == nil {
				tx.Set(key, e.Append(nil, c.Now))
			}
			return err
		},
	}
}

// write has the projection write what it keeps in memory.
func (pr *projection) write(tx *Tx) error {
	if pr.Write == nil {
		return nil
	}
	tx.owner = pr
	if err := pr.Write(tx); err != nil {
		return fmt.Errorf("projection %s: %w", pr.Name, err)
	}
	return nil
}

// has reports whether a key is in the projection's tables.
func (pr *projection) has(key []byte) bool {
	return len(key) > 0 && strings.IndexByte(pr.Tables, key[0]) >= 0
}
