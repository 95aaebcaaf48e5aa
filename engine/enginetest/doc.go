// Package enginetest is the suite that every adapter of an engine passes (ENG-2).
//
//	func TestMyEngineENG2(t *testing.T) {
//		enginetest.Run(t, func(t testing.TB, env *enginetest.Env) enginetest.Engine {
//			platform := startMyPlatform(t)
//			return enginetest.Engine{Open: platform.openProcess}
//		})
//	}
//
// # What runs
//
//	suite ── RequestRun, SendSignal ──► server of runlog ◄── Client ──┐
//	  │                                                               │
//	  ├── Adapter: StartRun, Signal, … ──►  process: adapter and worker ──► platform
//	  │                                                               │
//	  └── counts, fails, blocks ◄── Executors ────────────────────────┘
//
// With InBubble a scenario runs in fake time, on a network in memory. An engine whose platform is
// in the process of the test passes the suite in seconds, however busy the machine is. Without it,
// the suite waits for events in real time.
//
// Each scenario has a server (package clienttest), an Engine and plans of its own. A Process stands
// for one process of the engine. The suite kills it: from then on none of its calls to the log, to
// its executors and to its platform has an effect. So nothing that it does afterwards cleans up.
//
// # What is checked
//
// After each scenario the suite reads the events of each run, and compares them with the plan, with
// the signals that the log has accepted, and with what was executed:
//
//   - The events are numbered without a gap, and are in the scope of the run.
//   - RunStarted comes first. The run ends once, and as its steps have ended.
//   - A step starts once in each logical attempt, after the steps that it depends on have
//     succeeded, and not while the run is paused. It then ends once.
//   - A logical attempt is 1, or the one that an accepted RETRY_STEP has named. The next one is
//     also that of a step which is skipped while it runs, and of one whose skip a retry has undone.
//   - A pause, a resume, a cancellation and a skipped step have a cause.
//   - The engine attempt of an end is that of an execution, which has ended in the same way.
//   - Nothing is executed before its StepStarted, or again after its end.
//   - A step that is taken over from the run that this one reruns has its output there, and is not
//     executed.
//   - The snapshot of the run has no inconsistencies.
package enginetest
