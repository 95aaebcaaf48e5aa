// Command runlog-bench is the load generator: it measures nodes and clusters with the workloads of
// the package bench, and prints the report.
//
//	runlog-bench ──starts──▶ runlog serve, a node or several
//	     │  └───────starts──▶ runlog-bench echo-server, a limit of the machine
//	     └──gRPC──▶ one of them, or the node of --server
//
// It is a program of its own, so that runlog links none of it.
package main
