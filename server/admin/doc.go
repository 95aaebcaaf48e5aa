// Package admin serves the admin listener: health, metrics, profiles, the import of closed runs, and
// rebuilds of the projection.
package admin
