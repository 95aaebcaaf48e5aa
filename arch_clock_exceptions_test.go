package runlog_test

// realTime lists the functions that depend on the real clock, each with its reason: by folder, type
// and name. What such a function calls is excepted with it.
var realTime = map[string]string{
	// Fakes and kits that take time, or a port, that their caller asks for.
	"bench.fakeNode.Append":              "the pause is the service time of the fake that is measured",
	"bench/benchtest.Store.Restart":      "a fake server is away for a moment; no test waits for it",
	"bench/target.serveFakeNode":         "is a process; the benchmark that starts it chooses the address",
	"client/clienttest.plan.wait":        "an answer of the kit is late by as much as the test asks for",
	"client/clienttest.testStreamFaults": "has the bound on its time in a bubble only; runs on TCP too",
	"cmd/runlog.listenReserved":          "hands over a listener that is open; a restarted node takes its old port",

	"engine/blob.hostile.handler":                "a hostile server that sends a byte now and then, until its caller leaves",
	"engine/conductor/conductortest.Server.poll": "a long poll of the fake Conductor ends when its caller asked for it",
	"engine/enginetest.bed.pass":                 "a moment in which nothing happens, of engines with processes of their own",

	// Real processes, of which no event tells. Each of these asks another process, or its files.
	"bench/target.TestProcessThatDoesNotServe":    "reads a line in the log file of another process",
	"cmd/runlog.TestInterruptedImport":            "looks for the temporary file of another process",
	"engine/cmd/runlog-runner.TestRunnerCommands": "a fake server never answers; the client's own limit ends the call",
	"cmd/runlog.TestSmallNodeIsSmall":             "reads the resident memory of a process",
	"cmd/runlog.killBed.attach":                   "kills a process at drawn moments of its start",
	"cmd/runlog.killBed.awaitWatchers":            "asks a process for its number of watchers",
	"engine.TestKillNineQUE11":                    "kills a process at drawn moments",
	"engine/executor/command.wantGone":            "asks the kernel whether a process is gone",
	"server.TestBrowserWATCH4":                    "follows a real browser",
	"server/servertest/procs.Cluster.Leader":      "asks processes which of them leads",
	"server/servertest/procs.Cluster.awaitLevel":  "asks processes for their feature level",
	"server/servertest/procs.Cluster.awaitVoters": "asks processes for their members",
	"server/servertest/procs.Cluster.hearNothing": "keeps a network cut for as long as the kernel needs to notice",
	"server/servertest/procs.Cluster.lead":        "asks a process to lead until it does",
	"server/servertest/procs.Node.want":           "asks a process for the events of a run until they are there",
	"server/servertest/procs.Pass":                "lets the time of a fault pass; processes have no other clock",
	"server/servertest/procs.TestNetworkCuts":     "a bridge of the kernel learns its addresses",
	"server/servertest/procs.deliveries.append":   "paces the appends to processes",
	"server/servertest/procs.deliveries.drained":  "asks a process for the lag of subscriptions",
	"server/servertest/procs.deliveries.more":     "asks a process how many events its sinks have",
	"server/servertest/procs.hook":                "is a process that takes its old port again after a kill",
	"server/servertest/procs.threeWithCopy":       "asks a process for a signed checkpoint",
	"server/servertest/procs.wantFailStop":        "waits until the kernel shows a process's end",
	"server/servertest/sim.quitSilent":            "ends a process that says nothing for minutes",
	"server/servertest/sim.sums.add":              "gives up the shrinking of a failed world that takes too long",
	"server/subscriptions/sink/kafka.TestTLSBUS7": "the library hands over the address, with port 0",

	// Draws of libraries and of programs that print their seeds themselves.
	"server/servertest/mutants.TestTrial": "hashicorp/raft draws from the global source; the seed is a flag",
	"server/servertest/mutants.run":       "prints the first seed, which is a flag too",
	"server/servertest/sim.inBubble":      "hashicorp/raft draws from the global source; the seed is the world's",

	"projector.bed.propose": "its pause is 0 in real time, where tests spin to find races",
}
