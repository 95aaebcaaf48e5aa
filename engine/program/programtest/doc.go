// Package programtest is the test kit of the programs in engine/cmd and of runlog-temporal: their
// processes, their command lines, what they connect to, and what each of them must refuse.
//
//	func TestMain(m *testing.M) { programtest.Main(m, main) }
//
//	p := programtest.Start(t, programtest.Command("worker", "--allow", "file:///srv/plans"))
//	p.Says(t, programtest.Has("worker works"))
//	code := p.Stop(t)
package programtest
