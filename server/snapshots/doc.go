// Package snapshots serves the part of ProjectionService that answers with snapshots: of now, and
// as of an earlier moment.
package snapshots
