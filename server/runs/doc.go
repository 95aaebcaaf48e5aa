// Package runs serves RunService: runs with their metadata, made in one call with their first events
// (APP-12), read, and listed newest first.
package runs
