// Package snapshots serves the part of ProjectionService that answers with run snapshots: of the
// current state, and as of an earlier moment. A snapshot is never older than the request's
// consistency and minSeq allow. The service has nothing to close.
package snapshots
