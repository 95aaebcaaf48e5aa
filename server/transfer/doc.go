// Package transfer moves a cluster's state to a node outside of Raft (D5). The node pulls a
// checkpoint of another node's store file by file, and resumes where an earlier pull stopped.
//
//	Pull ──OpenCheckpoint──► Source ──► storage.Store.Checkpoint, held under an id
//	     ──ReadCheckpoint──►        ──► a file from an offset on, with checksums of each message
//	                                    and of the whole
//	     ──CloseCheckpoint─►
//	     ──► storage.Received, to be installed before the node takes part
package transfer
