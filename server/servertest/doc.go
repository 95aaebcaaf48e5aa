// Package servertest runs whole nodes in tests of the server and of its services: the nodes of
// cmd/runlog, in the process of the test, on a network and disks in memory. A test of a service
// lies with the service, and calls it as clients do.
//
//	func TestMine(t *testing.T) {
//		t.Parallel()
//		bubble.Test(t, func(t *testing.T) {
//			n := servertest.Start(t)
//			n.Append("run", servertest.NewEvent("RunStarted"))
//			_, err := n.Runs.GetRun(n.Context(), &runlogv1.GetRunRequest{RunId: "other"})
//			servertest.Refused(t, err, contract.ReasonRunNotFound)
//		})
//	}
//
// Such a test is in the package whose name ends with _test, because this package imports all
// services. It runs in fake time (package bubble). What proves something about the machine's disk,
// network or clock gives its nodes OnDisk or OnMachine.
//
// StartNodes starts several nodes that are one cluster. What no call tells of a node, or brings
// about, is in server.Internals. The kits below this folder attack whole clusters: sim in one
// process, procs with real ones. Authors of engines use client/clienttest.
package servertest
