package mutants

import "time"

// clientSide are bugs of the product's Go client, through which most clients of the simulator
// append.
func clientSide() []Mutant {
	return []Mutant{{
		Name: "result-lost-on-reconnect", Breaks: "APP-10", What: "what was in flight when a stream of the Go client breaks counts as not stored",
		Edits: []Edit{{
			File: "client/nodes.go",
			Old:  "return err == nil && len(header) > 0 || e.unknown()",
			New:  "return err != nil && len(header) > 0",
		}},
		Faults: clientFaults, Every: 500 * time.Millisecond,
	}, {
		Name: "order-lost-on-reconnect", Breaks: "APP-10", What: "the Go client sends what waits for a run before what it has to send again",
		Edits: []Edit{{
			File: "client/appender_queue.go",
			Old:  "\t\t\tagain = true\n",
			New:  "\t\t\tagain = true\n\t\t\tif l.last != c {\n\t\t\t\tl.remove(c)\n\t\t\t\tc.prev, l.last.next, l.last = l.last, c, c\n\t\t\t}\n",
		}},
		Faults: clientFaults, Every: 500 * time.Millisecond,
	}, {
		Name: "order-lost-over-leader-change", Breaks: "APP-10", What: "what a node has refused because it does not lead goes behind what the Go client has waiting for the run",
		Edits: []Edit{{
			File: "client/appender_lane.go",
			Old:  "\twait := a.client.opts.delay(e, tries)\n\ttime.AfterFunc",
			New: "\tif c := run.first; c != run.last && (e.Reason == ReasonNotLeader || e.Reason == ReasonNoLeader) {\n" +
				"\t\trun.remove(c)\n\t\tc.prev, run.last.next, run.last = run.last, c, c\n\t}\n" +
				"\twait := a.client.opts.delay(e, tries)\n\ttime.AfterFunc",
		}},
		Faults: clientFaults, Every: 500 * time.Millisecond,
	}, {
		Name: "results-shifted", Breaks: "APP-3", What: "the calls that share a message of the Go client get each other's results",
		Edits: []Edit{{
			File: "client/appender_lane.go",
			Old:  "Events: results[:c.events:c.events], LastSeq",
			New:  "Events: results[len(results)-c.events:], LastSeq",
		}, {
			File: "client/appender_lane.go",
			Old:  "results = results[c.events:]\n",
			New:  "results = results[:len(results)-c.events]\n",
		}},
	}}
}

// clientFaults break the streams of clients, and change the leader.
var clientFaults = []string{"client-reset", "client-slow", "kill", "transfer"}
