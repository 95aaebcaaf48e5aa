package temporal

import (
	"time"

	"go.temporal.io/sdk/workflow"
)

// Newer makes an engine one of a later version, whose workflows begin with a timer. The change is
// made as the page says, with workflow.GetVersion around it.
func Newer(e *Engine) {
	e.interpret = func(ctx workflow.Context, in Input) (summary, error) {
		if workflow.GetVersion(ctx, "later", workflow.DefaultVersion, 1) == 1 {
			if err := workflow.Sleep(ctx, 10*time.Millisecond); err != nil {
				return summary{}, err
			}
		}
		return interpret(ctx, in)
	}
}

// StopAll stops workers.
func StopAll[W interface{ Stop() }](workers []W) { stopAll(workers) }
