// Package runs serves RunService. CreateRun stores a run's metadata with its first events in one
// call (APP-12). Reads return runs one by one or as a list, newest first. Lists come from the
// projection; all else comes from the store. The service has nothing to close.
package runs
