package projector

import (
	"encoding/binary"
	"strings"

	"runlog/storage"
)

// columns are a set of what runs are filtered by.
type columns uint8

const (
	byTenant columns = 1 << iota
	byProject
	byEnvironment
	byPlan
	byStatus

	textColumns = 4 // the ones before the status
)

// traits are the values of a run, or those that a filter asks for.
type traits struct {
	texts  [textColumns]string // tenant, project, environment, plan
	status RunStatus
}

func traitsOf(run *storage.Run, status RunStatus) *traits {
	return &traits{
		texts:  [...]string{run.Scope.TenantID, run.Scope.ProjectID, run.Scope.EnvironmentID, run.PlanID},
		status: status,
	}
}

// index keeps the runs together that have the same values in some columns, newest first.
type index struct {
	table byte
	by    columns
}

// indexes of the list, those of more columns before those of fewer. Projects and environments have
// none of their own: they are parts of a tenant, and named with it.
var indexes = [...]index{
	{tableByEnvironment, byTenant | byProject | byEnvironment},
	{tableByProject, byTenant | byProject},
	{tableByTenantStatus, byTenant | byStatus},
	{tableByTenant, byTenant},
	{tableByPlan, byPlan},
	{tableByStatus, byStatus},
}

// whole is the list itself, as an index by nothing.
var whole = index{table: tableList}

// appendPrefix appends what the keys of all runs with these values begin with.
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

// appendText appends a text with its end, so that no text is the begin of another, and they sort as
// before: a zero byte becomes 00 ff, and the end is 00 01.
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

// appendPlace appends a run's place, which is how the keys of all tables of the list end: newer
// runs come first.
func appendPlace(b []byte, createdAt int64, runID string) []byte {
	return append(binary.BigEndian.AppendUint64(b, ^uint64(createdAt)), runID...)
}

// asked tells in which columns a filter wants a value.
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

// chosen returns the indexes whose common runs a filter asks for. Each narrows down what those
// before it have; columns that none of them knows are left to the rows of the list.
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

// list writes a run's rows: all of them when some may be missing, else its row of the list and
// those of the indexes that know the status.
//
// A row of a status is there once, from when the run takes the status until it leaves it. So a
// single delete is enough, which goes, together with the row, when they meet in a flush; plain ones
// would stay where the newest runs of a status are looked for. If a row stayed after all, it would
// name a run whose row of the list says otherwise.
func (w *write) list(f *folded) {
	d := w.d
	t := traitsOf(f.run, f.now.Status)
	d.place = appendPlace(d.place[:0], f.run.CreatedAt, f.run.RunID)
	d.row = appendListRow(d.row[:0], t)
	d.key = whole.appendPrefix(d.key[:0], t)
	d.rows.put(rowSet, d.key, d.place, d.row)
	before := *t
	before.status = f.listed
	leaves := rowSingleDelete
	if f.anew {
		leaves = rowDelete
	}
	for _, x := range indexes {
		moves := x.by&byStatus != 0
		if moves && f.listed != 0 {
			d.key = x.appendPrefix(d.key[:0], &before)
			d.rows.put(leaves, d.key, d.place, nil)
		}
		if moves || f.anew {
			d.key = x.appendPrefix(d.key[:0], t)
			d.rows.put(rowSet, d.key, d.place, nil)
		}
	}
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

// listEntry is a row of the list, whose texts are parts of it.
type listEntry struct {
	status RunStatus
	texts  [textColumns][]byte
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

// match tells whether a run has the values that a filter wants.
func (t *traits) match(e *listEntry) bool {
	for i, want := range t.texts {
		if want != "" && want != string(e.texts[i]) {
			return false
		}
	}
	return t.status == 0 || t.status == e.status
}
