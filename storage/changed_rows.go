package storage

import (
	"slices"
	"sync"

	"runlog/storage/internal/overlay"
	"runlog/storage/table"
)

// rowWatches are the functions that are called with rows of machines.
type rowWatches struct {
	mu   sync.RWMutex
	list []*rowWatch
}

type rowWatch struct {
	m    *registered
	tell func([]table.Row)
}

// WatchRows calls tell with the rows of a machine that each entry has written, in the order of
// their keys, once readers can see them. A row that was deleted has no value. stop ends it.
//
// tell is called by the goroutine that applies the log, in log order: it must be quick, and neither
// keep nor change the rows. A store that takes over another's state (Install) tells nothing of it.
func (s *Store) WatchRows(kind uint32, tell func([]table.Row)) (stop func()) {
	w := &rowWatch{m: s.machines[kind], tell: tell}
	s.rows.mu.Lock()
	defer s.rows.mu.Unlock()
	s.rows.list = append(slices.Clone(s.rows.list), w)
	return func() {
		s.rows.mu.Lock()
		defer s.rows.mu.Unlock()
		s.rows.list = slices.DeleteFunc(slices.Clone(s.rows.list), func(x *rowWatch) bool { return x == w })
	}
}

// tell calls the functions that watch rows.
func (r *rowWatches) tell(written []overlay.Row) {
	if len(written) == 0 {
		return
	}
	r.mu.RLock()
	list := r.list
	r.mu.RUnlock()
	for _, w := range list {
		if w.m == nil {
			continue
		}
		var rows []table.Row
		for i := range written {
			if _, owned := w.m.table(written[i].Key); owned {
				rows = append(rows, table.Row{Key: written[i].Key, Value: written[i].Value})
			}
		}
		if len(rows) > 0 {
			w.tell(rows)
		}
	}
}
