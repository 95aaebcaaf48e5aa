package bench

import (
	"errors"
	"fmt"
	"os"
	"time"

	"runlog/bench/load"
	"runlog/bench/report"
	"runlog/bench/target"
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
	// Systems to measure, each workload on one after the other. Empty: only the limits are
	// measured.
	Systems []target.System
	// Rounds repeat everything, each with another order of the systems. Default: 1.
	Rounds int
	// EchoCallers are the numbers of callers for grpc-echo, in addition to those of the workloads.
	EchoCallers []int
	// Duration that each workload and each limit is measured for. Default: 5 s.
	Duration time.Duration
	// WarmUp precedes each measurement and is not counted. Default: a fifth of Duration, at most 2
	// s.
	WarmUp time.Duration
	// Calls ends a workload or a limit before its duration is over; 0: it does not.
	Calls uint64
	// Connections that the callers of the echoes share; the systems have their own. Default: 1.
	Connections int
	// EchoServer is the command line of a process that calls ServeEcho, with its standard output
	// for w. Default: the echo is in this process, which spares it the switches between two.
	EchoServer []string
	// PayloadBytes is the size of an event's payload. Default: 400.
	PayloadBytes int
	// Dir holds the data of the systems and the files of the limits. Required.
	Dir string
	// Grace is how long calls that are under way or due at the end are waited for. Default: 30 s.
	Grace time.Duration
	// Progress is called every 200 ms with the progress of the run, from another goroutine.
	// Default: none.
	Progress func(Progress)
	// Measured is called with each result at once. Default: none.
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

// EnsureDefaults sets the defaults of unset fields.
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
			errs = append(errs, fmt.Errorf("bench: system %q has no Open", o.Systems[i].Name))
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
		errs = append(errs, fmt.Errorf("bench: %s is not a directory", o.Dir))
	}
	return errors.Join(errs...)
}
