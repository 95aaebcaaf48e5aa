// Package storagetest says what a store must do: a model of it, written from the contract with maps
// and slices, and a conformance suite that drives any store together with the model.
//
//	Run ──► proposals ──┬──► System under test ──► outcomes, runs, records, log ──┐
//	                    └──► Model             ──► the same ──────────────────────┴──► equal?
//
// The model shares no code with the store. Its digests come from the description of the canonical
// bytes in package contract, not from its functions, so that the two check each other.
//
// A Remote, a node behind its API, is driven together with the same model, and compared in all that
// an API shows.
//
// Local puts a storage.Store on a disk in memory, together with the log that feeds it, so that a
// test can reopen it, take its power away and replay.
package storagetest
