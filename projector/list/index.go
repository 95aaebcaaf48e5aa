package list

import (
	"encoding/binary"
	"errors"
	"strings"

	"runlog/projector/run"
	"runlog/storage"
)

// Format changes with the tables; the list is then rebuilt from the log.
const Format = 4

// Tables are the first bytes of the keys of the list.
const Tables = string(tableList) + string(tableByTenant) + string(tableByProject) + string(tableByEnvironment) +
	string(tableByPlan) + string(tableByVersion) + string(tableByStatus) + string(tableByTenantStatus) +
	string(tableByID) + LabelTables

// LabelTables are the tables that may have labels which were set after the position of the list:
// the log says when labels were set, and the store what they are.
const LabelTables = string(tableByLabel) + string(tableLabels)

const (
	tableList           byte = 'l'
	tableByTenant       byte = 'T'
	tableByProject      byte = 'J'
	tableByEnvironment  byte = 'E'
	tableByPlan         byte = 'P'
	tableByVersion      byte = 'V'
	tableByStatus       byte = 'S'
	tableByTenantStatus byte = 'U'
	tableByID           byte = 'R'
	tableByLabel        byte = 'L'
	tableLabels         byte = 'M'
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
	byVersion
	byStatus

	textColumns = 5 // the ones before the status
)

// traits are the values of a run in the columns, or the values that a filter asks for. A filter may
// ask for several statuses; those are not here.
type traits struct {
	texts  [textColumns]string // tenant, project, environment, plan, plan version
	status run.Status
}

func traitsOf(r *storage.Run, status run.Status) *traits {
	return &traits{
		texts:  [...]string{r.Scope.TenantID, r.Scope.ProjectID, r.Scope.EnvironmentID, r.PlanID, r.PlanVersion},
		status: status,
	}
}

// index is a table of runs, grouped by their values in some columns; newest first in a group.
type index struct {
	table byte
	by    columns
}

// indexes of the list; those of more columns come first. Projects and environments have no index of
// their own: a filter names them together with their tenant. Nor have versions of plans.
var indexes = [...]index{
	{tableByEnvironment, byTenant | byProject | byEnvironment},
	{tableByProject, byTenant | byProject},
	{tableByTenantStatus, byTenant | byStatus},
	{tableByTenant, byTenant},
	{tableByVersion, byPlan | byVersion},
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

// appendLabelPrefix appends the prefix that the keys of all runs with a label share.
func appendLabelPrefix(b []byte, l *run.Label) []byte {
	return appendText(appendText(append(b, tableByLabel), l.Key), l.Value)
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

// placeHeader is the length of a place before the runId.
const placeHeader = 8

// appendPlace appends a run's place, with which the keys of all tables end but of that by id: newer
// runs come first.
func appendPlace(b []byte, createdAt int64, runID string) []byte {
	return append(binary.BigEndian.AppendUint64(b, ^uint64(createdAt)), runID...)
}

// asked returns the columns in which a filter asks for a value.
func asked(f *run.Filter) (by columns) {
	t := traitsAsked(f)
	for i, text := range t.texts {
		if text != "" {
			by |= 1 << i
		}
	}
	if f.Statuses != 0 {
		by |= byStatus
	}
	return by
}

func traitsAsked(f *run.Filter) *traits {
	return &traits{texts: [...]string{f.TenantID, f.ProjectID, f.EnvironmentID, f.PlanID, f.PlanVersion}}
}

// chosen returns the indexes that a filter can use, and the columns that they have; the runs it
// asks for are in all of them. The rows of the list tell the columns that no chosen index has.
func chosen(f *run.Filter) (list []index, covered columns) {
	by := asked(f)
	for _, x := range indexes {
		if x.by&^by == 0 && x.by&^covered != 0 {
			list = append(list, x)
			covered |= x.by
		}
	}
	return list, covered
}
