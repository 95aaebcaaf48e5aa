// Package target has the systems under measurement: the interfaces that a benchmark drives, and
// runlog behind them. Remote is a node as its clients see it, Node a node in a process of its own,
// Cluster several such nodes.
//
// The bench owns what it starts: Close ends each process by its id. A subscription reads raw HTTP/2
// frames, because tens of thousands of gRPC streams would measure their client.
package target
