package bench

import (
	"errors"
	"fmt"
	"os"
	"runlog/bench/load"
	"runlog/bench/report"
	"runlog/bench/target"
	"time"
)

// Bounds of Options.
const (
	MaxConnections = 1000
	MaxRounds      = 99
)

// Options of a run.
type Options struct {
	// Workloads to measure, in this order. Default: append-unary, append-batch and append-stream.
	Workloads []report.Workload
	// Systems to measure them on, each workload on one after the other. Without any, the limits are
	// all.
	Systems []target.System
	// Rounds repeat everything, each with the systems in another order. Default: 1.
	Rounds int
	// EchoCallers are the numbers of callers that grpc-echo is measured with beside those of the
	// workloads.
	EchoCallers []int
	// Duration that each workload and each limit is measured for. Default: 5 s.
	Duration time.Duration
	// WarmUp goes before each and is left out. Default: a fifth of Duration, at most 2 s.
	WarmUp time.Duration
	// Calls ends a workload or a limit before its duration is over; 0: it does not.
	Calls uint64
	// Connections that the callers of the echoes share; the systems see to their own. Default: 1.
	Connections int
	// EchoServer is the command line of a process that calls ServeEcho, with its standard output
	// for w. Default: the echo is in this process, which spares it the switches between two.
	EchoServer []string
	// PayloadBytes is the size of an event's payload. Default: 400.
	PayloadBytes int
	// Dir is where the systems keep their data and the limits write their files. Required.
	Dir string
	// Grace is how long calls that are under way or due at the end are waited for. Default: 30 s.
	Grace time.Duration
	// Progress is told every 200 ms how far the run is, from another goroutine. Default: nobody.
	Progress func(Progress)
	// Measured is told each result as soon as it is known. Default: nobody.
	Measured func(report.Result)

	text string // to fill payloads from
}

// Progress of a run.
type Progress struct {
	System, Name   string
	Round, Rounds  int
	Elapsed, Total time.Duration // of this workload or limit, warm-up included
	Events         uint64        // acknowledged so far
	// that are done, and that end it instead of Total; 0 of 0: the time does
	Step, Steps int
}

const progressEvery = 200 * time.Millisecond

// EnsureDefaults fills in what is left out.
func (o *Options) EnsureDefaults() {
	if len(o.Workloads) == 0 && len(o.Systems) > 0 {
		for _, k := range Kinds()[:3] {
			o.Workloads = append(o.Workloads, k.Usual)
		}
	}
	if o.Rounds == 0 {
		o.Rounds = 1
	}
	if o.Duration == 0 {
		o.Duration = 5 * time.Second
	}
	if o.WarmUp == 0 {
		o.WarmUp = min(o.Duration/5, 2*time.Second)
	}
	if o.Connections == 0 {
		o.Connections = 1
	}
	if o.PayloadBytes == 0 {
		o.PayloadBytes = 400
	}
	if o.Grace == 0 {
		o.Grace = 30 * time.Second
	}
}

// Validate reports every fault of the options.
func (o *Options) Validate() error {
	var errs []error
	within := func(name string, n, low, high int) {
		if n < low || n > high {
			errs = append(errs, fmt.Errorf("bench: %s is %d, want %d to %d", name, n, low, high))
		}
	}
	for i := range o.Workloads {
		errs = append(errs, validate(&o.Workloads[i]))
	}
	for i := range o.Systems {
		if o.Systems[i].Open == nil {
			errs = append(errs, fmt.Errorf("bench: system %q cannot be opened", o.Systems[i].Name))
		}
	}
	if o.Duration <= 0 || o.WarmUp < 0 {
		errs = append(errs, fmt.Errorf("bench: duration is %v after a warm-up of %v, want more than 0 and 0 or more", o.Duration, o.WarmUp))
	}
	for _, n := range o.EchoCallers {
		within("callers", n, 1, report.MaxCallers)
	}
	within("rounds", o.Rounds, 1, MaxRounds)
	within("connections", o.Connections, 1, MaxConnections)
	within("payload bytes", o.PayloadBytes, load.MinPayloadBytes, load.MaxPayloadBytes)
	if o.Dir == "" {
		errs = append(errs, errors.New("bench: Options.Dir is empty"))
	} else if info, err := os.Stat(o.Dir); err != nil || !info.IsDir() {
		errs = append(errs, fmt.Errorf("bench: %s is no directory", o.Dir))
	}
	return errors.Join(errs...)
}
