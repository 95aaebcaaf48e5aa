// Package list is the projection of the list of runs: a row for each run, and indexes on the
// columns by which runs are filtered.
//
//	l place                             list of runs, newest first   row
//	T tenant place                      its indexes                  nothing
//	J tenant project place
//	E tenant project environment place
//	P plan place
//	S status:1 place
//	U tenant status:1 place
//
// A place is ^createdAt:8 runId. A text before it ends with 00 01, and a zero byte in it is written
// as 00 ff. A row is status:1, then tenant, project, environment and plan, each a uvarint length
// and bytes.
//
// A [Folder] writes the rows that a change of a run needs. It trusts the status that the change
// names as the one before, and does not read the row, except while the list is behind and catches
// up. [Read] returns a page: it intersects the indexes that the filter can use, and checks the
// other columns in the rows.
//
// Invariant: a run has exactly one row in each table, of the status that its row in l has.
package list
