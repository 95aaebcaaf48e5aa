package list

import (
	"encoding/binary"
	"errors"
	"strings"

	"runlog/projector/run"
	"runlog/storage"
)

// Format changes with the tables; the list is then rebuilt from the log.
const Format = 1

// Tables are the first bytes of the keys of the list.
const Tables = string(tableList) + string(tableByTenant) + string(tableByProject) + string(tableByEnvironment) +
	string(tableByPlan) + string(tableByStatus) + string(tableByTenantStatus)

const (
	tableList           byte = 'l'
	tableByTenant       byte = 'T'
	tableByProject      byte = 'J'
	tableByEnvironment  byte = 'E'
	tableByPlan         byte = 'P'
	tableByStatus       byte = 'S'
	tableByTenantStatus byte = 'U'
)

// ErrDamaged means that a row of the list cannot be read. The remedy is to rebuild the list.
var ErrDamaged = errors.New("list: damaged row")

// columns is a set of columns by which runs are filtered.
type columns uint8

const (
	byTenant columns = 1 << iota
	byProject
	byEnvironment
	byPlan
	byStatus

	textColumns = 4 // the ones before the status
)

// traits are the values of a run in the columns, or the values that a filter asks for.
type traits struct {
	texts  [textColumns]string // tenant, project, environment, plan
	status run.Status
}

func traitsOf(r *storage.Run, status run.Status) *traits {
	return &traits{
		texts:  [...]string{r.Scope.TenantID, r.Scope.ProjectID, r.Scope.EnvironmentID, r.PlanID},
		status: status,
	}
}

// index is a table of runs, grouped by their values in some columns; newest first in a group.
type index struct {
	table byte
	by    columns
}

// indexes of the list; those of more columns come first. Projects and environments have no index of
// their own: a filter names them together with their tenant.
var indexes = [...]index{
	{tableByEnvironment, byTenant | byProject | byEnvironment},
	{tableByProject, byTenant | byProject},
	{tableByTenantStatus, byTenant | byStatus},
	{tableByTenant, byTenant},
	{tableByPlan, byPlan},
	{tableByStatus, byStatus},
}

// whole is the list itself: an index by no column.
var whole = index{table: tableList}

// appendPrefix appends the prefix that the keys of all runs with these values share.
func (x index) appendPrefix(b []byte, t *traits) []byte {
	b = append(b, x.table)
	for i, text := range t.texts {
		if x.by&(1<<i) != 0 {
			b = appendText(b, text)
		}
	}
	if x.by&byStatus != 0 {
		b = append(b, byte(t.status))
	}
	return b
}

// appendText appends a text with an end mark, so that no text is a prefix of another and the order
// stays: a zero byte becomes 00 ff, and the end is 00 01.
func appendText(b []byte, text string) []byte {
	for {
		zero := strings.IndexByte(text, 0)
		if zero < 0 {
			break
		}
		b = append(append(b, text[:zero]...), 0, 0xff)
		text = text[zero+1:]
	}
	return append(append(b, text...), 0, 1)
}

// appendPlace appends a run's place, with which the keys of all tables end: newer runs come first.
func appendPlace(b []byte, createdAt int64, runID string) []byte {
	return append(binary.BigEndian.AppendUint64(b, ^uint64(createdAt)), runID...)
}

// asked returns the columns in which a filter asks for a value.
func (t *traits) asked() (by columns) {
	for i, text := range t.texts {
		if text != "" {
			by |= 1 << i
		}
	}
	if t.status != 0 {
		by |= byStatus
	}
	return by
}

// chosen returns the indexes that a filter can use; the runs it asks for are in all of them. The
// rows of the list tell the columns that no chosen index has.
func (t *traits) chosen() (list []index) {
	asked := t.asked()
	var covered columns
	for _, x := range indexes {
		if x.by&^asked == 0 && x.by&^covered != 0 {
			list = append(list, x)
			covered |= x.by
		}
	}
	return list
}

// appendListRow appends a row of the list: status (1), then tenant, project, environment and plan,
// each a uvarint length and bytes.
func appendListRow(b []byte, t *traits) []byte {
	b = append(b, byte(t.status))
	for _, text := range t.texts {
		b = binary.AppendUvarint(b, uint64(len(text)))
		b = append(b, text...)
	}
	return b
}

// listEntry is a parsed row of the list. Its texts point into the row.
type listEntry struct {
	status run.Status
	texts  [textColumns][]byte
}

func parseListRow(b []byte) (e listEntry, ok bool) {
	if len(b) == 0 {
		return e, false
	}
	e.status, b = run.Status(b[0]), b[1:]
	for i := range e.texts {
		n, w := binary.Uvarint(b)
		if w <= 0 || n > uint64(len(b)-w) {
			return e, false
		}
		e.texts[i], b = b[w:w+int(n)], b[w+int(n):]
	}
	return e, len(b) == 0
}

// match reports whether a run has the values that a filter asks for.
func (t *traits) match(e *listEntry) bool {
	for i, want := range t.texts {
		if want != "" && want != string(e.texts[i]) {
			return false
		}
	}
	return t.status == 0 || t.status == e.status
}
