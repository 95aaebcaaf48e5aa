// Package target has the systems under measurement: the interfaces that a benchmark drives, and
// runlog as their implementation. Remote is a node as its clients see it, Node a node in a process
// of its own, Cluster several such nodes.
//
// The bench owns the processes that it starts: Close ends each by its id. A subscription reads raw
// HTTP/2 frames: with tens of thousands of gRPC streams, the benchmark would measure its own
// client.
package target
