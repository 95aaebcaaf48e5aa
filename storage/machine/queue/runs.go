package queue

import (
	"errors"
	"fmt"
	"slices"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage"
	"runlog/storage/table"
)

// ErrToken means that a page token is not one that ListRuns has returned.
var ErrToken = errors.New("queue: undecodable page token: begin with the first page")

// ListRuns returns at most n runs of a queue that are in one of some states; no states: in any.
// First are the ready ones in the order in which they would be leased at a time, then the delayed,
// leased, running and exhausted ones in commit order each. token is empty for the first page, else
// that of the page before. next is empty behind the last one. A run that changes its state
// meanwhile may be on two pages, or on none. A queue that does not exist has no runs.
func ListRuns(s *storage.Store, name Name, at int64, states []State, token []byte, n int,
) (list []*Run, next []byte, err error) {
	c := cursor{at: at, state: Ready}
	if len(token) > 0 {
		if c, err = parseCursor(token); err != nil {
			return nil, nil, err
		}
	}
	list, err = storage.ReadTables(s, Kind, func(r table.Reader) ([]*Run, error) {
		number, err := numberOf(r, name)
		if err != nil || number == 0 {
			return nil, err
		}
		q, err := queueByNumber(r, number)
		if err != nil {
			return nil, err
		}
		l := &lister{r: r, q: q, settings: settingsOf(q), most: n, states: states}
		if c, err = l.list(c); err != nil {
			return nil, err
		}
		if len(l.runs) == n && c.state <= Exhausted {
			next = c.encode()
		}
		return l.runs, nil
	})
	return list, next, err
}

// lister gathers a page of a queue's runs.
type lister struct {
	r        table.Reader
	q        *recordv1.Queue
	settings Settings
	states   []State // empty: any
	runs     []*Run
	most     int
}

func (l *lister) wants(s State) bool { return len(l.states) == 0 || slices.Contains(l.states, s) }

// list gathers runs from a cursor on, and returns where the next page begins.
func (l *lister) list(c cursor) (cursor, error) {
	var err error
	if c.state == Ready && !l.wants(Ready) {
		c.state, c.from = Delayed, [MaxPriority + 1]uint64{}
	}
	if c.state == Ready {
		if c, err = l.ready(c); err != nil {
			return c, err
		}
	}
	for c.state != Ready && c.state <= Exhausted && len(l.runs) < l.most {
		if !l.wants(c.state) {
			c.state, c.from = c.state+1, [MaxPriority + 1]uint64{}
			continue
		}
		p, found, err := l.first(c.state, 0, c.from[0])
		switch {
		case err != nil:
			return c, err
		case !found:
			c.state, c.from = c.state+1, [MaxPriority + 1]uint64{}
			continue
		}
		if err := l.add(p); err != nil {
			return c, err
		}
		c.from[0] = p.order + 1
	}
	return c, nil
}

// ready gathers ready runs: always the best of the first ones of the priorities (QUE-5).
func (l *lister) ready(c cursor) (cursor, error) {
	var first [MaxPriority + 1]runRow
	var there [MaxPriority + 1]bool
	look := func(p int) (err error) {
		if there[p] = p < len(l.q.Lines) && l.q.Lines[p].Ready > 0; there[p] {
			first[p], there[p], err = l.first(Ready, uint32(p), max(c.from[p], l.q.Lines[p].Order))
		}
		return err
	}
	for p := range first {
		if err := look(p); err != nil {
			return c, err
		}
	}
	for len(l.runs) < l.most {
		best, score := -1, uint64(0)
		for p := range first {
			if !there[p] {
				continue
			}
			e := effective(uint32(p), first[p].enqueuedAt, c.at, l.settings.AgingPeriod)
			if best < 0 || e > score || e == score && first[p].order < first[best].order {
				best, score = p, e
			}
		}
		if best < 0 {
			c.state, c.from = Delayed, [MaxPriority + 1]uint64{}
			return c, nil
		}
		if err := l.add(first[best]); err != nil {
			return c, err
		}
		c.from[best] = first[best].order + 1
		if err := look(best); err != nil {
			return c, err
		}
	}
	return c, nil
}

// first returns the first run of a state from an order on.
func (l *lister) first(s State, priority uint32, from uint64) (runRow, bool, error) {
	prefix := stateKey(l.q.Number, s, priority)
	for row, err := range l.r.Scan(prefix.Number(from), prefix.After()) {
		if err != nil {
			return runRow{}, false, err
		}
		p, err := parseRunRow(row.Key, row.Value)
		return p, err == nil, err
	}
	return runRow{}, false, nil
}

func (l *lister) add(p runRow) error {
	m, err := queuedRun(l.r, p.runID)
	if err != nil {
		return err
	}
	if m == nil {
		return fmt.Errorf("%w: run %q of queue %d has no row", table.ErrRow, p.runID, l.q.Number)
	}
	l.runs = append(l.runs, decodeRun(m, l.q))
	return nil
}
