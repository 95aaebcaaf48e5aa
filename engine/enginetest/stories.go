package enginetest

import (
	"context"

	"runlog/engine/executor"
	"runlog/proto/contract"
)

// stories are the runs that are told with and without kills.
var stories = []*story{
	{
		name:  "RetriesOfThePlatform",
		steps: steps(step("a", ""), step("b", "a"), step("c", "")),
		do: func(_ context.Context, _ *bed, task executor.Task) error {
			if task.StepID == "a" && task.EngineAttempt < 3 {
				return executor.Retry("BUSY", "not yet")
			}
			return nil
		},
		end: contract.RunCompleted, want: []string{"StepCompleted a", "StepCompleted b", "StepCompleted c"}, exact: []string{"StepRetrying a 1.1", "StepRetrying a 1.2", "StepCompleted a 1.3", "StepCompleted b 1.1"},
		never: []string{contract.StepFailed, contract.StepSkipped},
	},
	{
		name:  "FailedStep",
		steps: steps(step("a", ""), step("b", "a"), step("c", ""), step("d", "b c")),
		do: func(_ context.Context, _ *bed, task executor.Task) error {
			if task.StepID == "a" {
				return executor.Fail("BROKEN", "never")
			}
			return nil
		},
		end: contract.RunFailed, want: []string{"StepFailed a", "StepSkipped b", "StepCompleted c", "StepSkipped d"}, exact: []string{"StepFailed a 1.1"},
		never: []string{"StepStarted b", "StepStarted d"},
	},
	{
		name:    "Pause",
		steps:   steps(step("a", ""), step("b", "a"), step("c", "b")),
		signals: []string{"PAUSE", "RESUME"},
		do: func(ctx context.Context, b *bed, task executor.Task) error {
			switch task.StepID {
			case "a":
				return b.after(ctx, task.RunID, "PAUSE", 1)
			case "b":
				if has(b.events(task.RunID), contract.RunPaused) {
					return b.after(ctx, task.RunID, "PAUSE", 2)
				}
			}
			return nil
		},
		react: func(list []event) (due []ask) {
			if has(list, "StepStarted a") {
				due = append(due, ask{kind: "PAUSE", nth: 1})
			}
			if count(list, contract.RunPaused) == 1 {
				due = append(due, ask{kind: "RESUME", nth: 1, polls: 10})
			}
			if count(list, contract.RunResumed) == 1 && has(list, "StepStarted b") {
				due = append(due, ask{kind: "PAUSE", nth: 2})
			}
			if count(list, contract.RunPaused) == 2 {
				due = append(due, ask{kind: "RESUME", nth: 2, polls: 10})
			}
			return due
		},
		end: contract.RunCompleted, want: []string{contract.RunPaused, contract.RunResumed, "StepCompleted c"},
	},
	stop("Cancel", "CANCEL"),
	stop("EmergencyStop", "EMERGENCY_STOP"),
	{
		name: "RetryStep",
		// d may be skipped before the retry.
		steps:   steps(step("a", ""), step("hold", ""), step("c", "a hold"), step("d", "a")),
		signals: []string{"RETRY_STEP"},
		do: func(ctx context.Context, b *bed, task executor.Task) error {
			switch {
			case task.StepID == "hold":
				return b.after(ctx, task.RunID, "RETRY_STEP", 1)
			case task.StepID == "a" && task.LogicalAttempt == 1:
				return executor.Fail("BROKEN", "until it is retried")
			case task.StepID == "a" && task.EngineAttempt == 1:
				return executor.Retry("BUSY", "not yet")
			}
			return nil
		},
		react: func(list []event) (due []ask) {
			if has(list, "StepFailed a") {
				due = append(due, ask{kind: "RETRY_STEP", step: "a", nth: 1})
			}
			return due
		},
		end: contract.RunCompleted, want: []string{"StepFailed a", "StepCompleted a", "StepCompleted c", "StepCompleted d"}, exact: []string{"StepFailed a 1.1", "StepRetrying a 2.1", "StepCompleted a 2.2"},
		never: []string{"StepSkipped c"},
	},
	{
		name: "RetryOfHeldRun", holds: true,
		steps:   steps(step("a", ""), step("b", "a"), step("c", "")),
		signals: []string{"RETRY_STEP"},
		do: func(_ context.Context, _ *bed, task executor.Task) error {
			if task.StepID == "a" && task.LogicalAttempt < 3 {
				return executor.Fail("BROKEN", "until it is retried twice")
			}
			return nil
		},
		react: func(list []event) (due []ask) {
			for n := 1; n <= count(list, contract.RunPaused); n++ {
				due = append(due, ask{kind: "RETRY_STEP", step: "a", nth: n, polls: 10})
			}
			return due
		},
		end: contract.RunCompleted, want: []string{"StepFailed a", "StepSkipped b", contract.RunPaused, contract.RunResumed, "StepCompleted b", "StepCompleted c"},
		exact: []string{"StepFailed a 1.1", "StepFailed a 2.1", "StepCompleted a 3.1"},
	},
	decide("ResumeOfHeldRun", "RESUME", contract.RunFailed),
	decide("CancelOfHeldRun", "CANCEL", contract.RunCancelled),
	{
		name:    "SkipStep",
		steps:   steps(step("hold", ""), step("b", "hold"), step("c", "b"), step("d", "hold")),
		signals: []string{"SKIP_STEP"},
		do: func(ctx context.Context, b *bed, task executor.Task) error {
			if task.StepID == "hold" {
				return b.after(ctx, task.RunID, "SKIP_STEP", 1)
			}
			return nil
		},
		react: func(list []event) (due []ask) {
			if has(list, "StepStarted hold") {
				due = append(due, ask{kind: "SKIP_STEP", step: "b", nth: 1})
			}
			return due
		},
		end: contract.RunCompleted, want: []string{"StepSkipped b", "StepSkipped c", "StepCompleted d"}, never: []string{"StepStarted b", "StepStarted c"},
	},
	{
		name:    "SkipRunningStep",
		steps:   steps(step("a", ""), step("b", "a"), step("c", "")),
		signals: []string{"SKIP_STEP"},
		do: func(ctx context.Context, _ *bed, task executor.Task) error {
			if task.StepID == "a" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		},
		react: func(list []event) (due []ask) {
			if has(list, "StepStarted a") {
				due = append(due, ask{kind: "SKIP_STEP", step: "a", nth: 1})
			}
			return due
		},
		end: contract.RunCompleted, want: []string{"StepSkipped a", "StepSkipped b", "StepCompleted c"}, never: []string{"StepStarted b"},
	},
	{
		name: "Rerun",
		steps: steps(step("a", ""), step("b", "a"), step("c", "b"), step("d", "a c"), step("mourn", "c", `,"when":[{"step":"c","status":"FAILED"}]`),
			step("yes", "a c", `,"when":[{"step":"a","output":"/of","equals":"a"}]`), step("no", "a c", `,"when":[{"step":"a","output":"/of","equals":"b"}]`)),
		past: []event{
			left(contract.StepStarted, "a", 1), left(contract.StepCompleted, "a", 1),
			left(contract.StepStarted, "b", 1), left(contract.StepFailed, "b", 1), left(contract.StepStarted, "b", 2), left(contract.StepCompleted, "b", 2),
			left(contract.StepStarted, "c", 1), left(contract.StepFailed, "c", 1), left(contract.StepSkipped, "d", 1),
			left(contract.StepStarted, "mourn", 1), left(contract.StepCompleted, "mourn", 1),
		},
		end: contract.RunCompleted, want: []string{"StepCompleted a 1.1", "StepCompleted b 1.1", "StepCompleted c", "StepCompleted d", "StepCompleted yes",
			"StepSkipped mourn", "StepSkipped no"},
		never: []string{"StepStarted a", "StepStarted b", contract.StepFailed},
	},
}

// decide is the story of a run that a failed step holds, until a signal ends it.
func decide(name, signal, end string) *story {
	return &story{
		name: name, holds: true,
		steps:   steps(step("a", ""), step("b", "a")),
		signals: []string{signal},
		do: func(context.Context, *bed, executor.Task) error {
			return executor.Fail("BROKEN", "never")
		},
		react: func(list []event) (due []ask) {
			if has(list, contract.RunPaused) {
				due = append(due, ask{kind: signal, nth: 1, polls: 10})
			}
			return due
		},
		end: end, want: []string{"StepFailed a", "StepSkipped b", contract.RunPaused}, never: []string{"StepStarted b"},
	}
}

// stop is the story of a run that a signal ends while a step is executed.
func stop(name, signal string) *story {
	return &story{
		name:    name,
		steps:   steps(step("a", ""), step("b", "a")),
		signals: []string{signal},
		do: func(ctx context.Context, _ *bed, _ executor.Task) error {
			<-ctx.Done()
			return ctx.Err()
		},
		react: func(list []event) (due []ask) {
			if has(list, "StepStarted a") {
				due = append(due, ask{kind: signal, nth: 1})
			}
			return due
		},
		end: contract.RunCancelled, never: []string{"StepStarted b", contract.StepCompleted},
	}
}
