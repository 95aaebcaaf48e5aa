// Package list is the projection of the list of runs: a row for each run, and indexes on the
// columns by which runs are filtered.
//
//	l place                             list of runs, newest first   row
//	T tenant place                      its indexes                  nothing
//	J tenant project place
//	E tenant project environment place
//	P plan place
//	V plan version place
//	S status:1 place
//	U tenant status:1 place
//	R runId                             runs by their id             createdAt:8
//	L key value place                   runs with a label            nothing
//	M place                             the labels of a run          key value …
//
// A place is ^createdAt:8 runId. A text before it ends with 00 01, and a zero byte in it is written
// as 00 ff. Texts in rows are a uvarint length and bytes. A row of l is
//
//	status:1 tenant project environment plan version startedAt completedAt lastEventAt
//	duration failedSteps stepCount pausedAt running currentStep engineType triggeredBy
//	triggerSource planRef
//
// Times are nanoseconds and 1, a uvarint, then seconds since 1970, a varint; 0 alone is an absent
// time. Duration is the byte 1 and milliseconds, a varint; the byte 0 alone if it is absent. The
// other numbers are uvarints. PlanRef is a text, its canonical form. M has no row for a run
// without labels.
//
// A [Folder] writes the rows that a change of a run needs. It trusts the status that the change
// names as the one before, and does not read the row, except while the list is behind and catches
// up. The log has no labels: the folder takes those that the store has when it reads the commit
// that set them, and the row in M tells it which ones to remove.
//
// [Read] returns a page: it intersects the indexes that the filter can use, and checks the other
// columns in the rows. Several statuses are the union of their ranges. A runId prefix of few runs
// is a list in memory. A page looks at a bounded number of rows.
//
// Invariant: a run has exactly one row in each of l, T, J, E, P, V, S, U and R, of the status that
// its row in l has, and one row in L for each label in M.
package list
