//go:build !unix

package serve

import "time"

func processorTime() (time.Duration, bool) { return 0, false }
