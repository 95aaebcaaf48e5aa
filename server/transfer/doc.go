// Package transfer gives a node the state of its cluster outside of Raft (D5): a checkpoint of another
// node's store, pulled file by file, which goes on where it was cut.
//
//	Pull ──OpenCheckpoint──► Source ──► storage.Store.Checkpoint, held under an id
//	     ──ReadCheckpoint──►        ──► a file from an offset on, with a sum of each message and of the whole
//	     ──CloseCheckpoint─►
//	     ──► storage.Received, to be installed before the node takes part
package transfer
