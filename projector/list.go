package projector

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"runlog/storage"
)

// maxListScan bounds how many rows one page looks at; a page that found less than asked for then ends
// early with a cursor.
const maxListScan = 50_000

// Filter says which runs to list. Empty fields mean any.
type Filter struct {
	TenantID, ProjectID, EnvironmentID, PlanID string
	Status                                     RunStatus // 0: any
	CreatedAfter                               int64     // nanoseconds, exclusive; 0: any
	CreatedBefore                              int64     // nanoseconds, exclusive; 0: any
}

// Listed is a run in a list.
type Listed struct {
	RunID  string
	Status RunStatus
}

// List returns a page of runs, newest first, and a cursor for the next page, nil at the end.
func (p *Projector) List(f Filter, cursor []byte, limit int) (page []Listed, next []byte, err error) {
	lower, upper := []byte{tableList}, []byte{tableList + 1}
	if f.CreatedBefore > 0 {
		// Newer runs have smaller keys: begin at those created just before.
		lower = listKeyOf(f.CreatedBefore-1, "")
	}
	if cursor != nil {
		after := append([]byte{tableList}, append(cursor, 0)...)
		if bytes.Compare(after, lower) > 0 {
			lower = after
		}
	}
	if f.CreatedAfter > 0 {
		upper = listKeyOf(f.CreatedAfter, "")
	}
	p.disk.RLock()
	defer p.disk.RUnlock()
	if p.disk.db == nil {
		return nil, nil, fmt.Errorf("%w: is being made anew", errProjection)
	}
	it, err := p.disk.db.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errProjection, err)
	}
	defer func() {
		if err = errors.Join(err, it.Close()); err != nil {
			p.disk.db.damaged(err)
		}
	}()
	looked := 0
	var last []byte
	for it.First(); it.Valid(); it.Next() {
		if len(page) == limit || looked == maxListScan {
			return page, last, nil
		}
		looked++
		last = bytes.Clone(it.Key()[1:])
		row, ok := parseListRow(it.Value())
		if !ok || len(last) < 8 {
			return nil, nil, fmt.Errorf("%w: list row %x", errProjection, it.Key())
		}
		if f.matches(&row) {
			page = append(page, Listed{RunID: string(last[8:]), Status: row.status})
		}
	}
	return page, nil, it.Error()
}

// listKey sorts newer runs first.
func listKey(run *storage.Run) []byte { return listKeyOf(run.CreatedAt, run.RunID) }

func listKeyOf(createdAt int64, runID string) []byte {
	b := binary.BigEndian.AppendUint64([]byte{tableList}, ^uint64(createdAt))
	return append(b, runID...)
}

// listEntry is what a list filters by: status (1), then tenant, project, environment and plan, each a
// uvarint length and bytes.
type listEntry struct {
	status RunStatus
	texts  [4][]byte
}

func listRow(f *folded) []byte {
	b := []byte{byte(f.now.Status)}
	for _, s := range [...]string{f.run.Scope.TenantID, f.run.Scope.ProjectID, f.run.Scope.EnvironmentID, f.run.PlanID} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	return b
}

func parseListRow(b []byte) (e listEntry, ok bool) {
	if len(b) == 0 {
		return e, false
	}
	e.status, b = RunStatus(b[0]), b[1:]
	for i := range e.texts {
		n, w := binary.Uvarint(b)
		if w <= 0 || n > uint64(len(b)-w) {
			return e, false
		}
		e.texts[i], b = b[w:w+int(n)], b[w+int(n):]
	}
	return e, len(b) == 0
}

func (f *Filter) matches(e *listEntry) bool {
	for i, want := range [...]string{f.TenantID, f.ProjectID, f.EnvironmentID, f.PlanID} {
		if want != "" && want != string(e.texts[i]) {
			return false
		}
	}
	return f.Status == 0 || f.Status == e.status
}
