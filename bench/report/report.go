package report

import (
	"fmt"
	"slices"
	"time"
)

// Report is everything that a run has measured.
type Report struct {
	Machine  Machine       `json:"machine"`
	Settings Settings      `json:"settings"`
	Systems  []SystemFacts `json:"systems,omitempty"`
	LeftOut  []string      `json:"leftOut,omitempty"`
	Results  []Result      `json:"results"`
	// Goals are the verdicts of Judge.
	Goals []Verdict `json:"goals,omitempty"`
}

// Settings that all workloads share.
type Settings struct {
	Seconds       float64 `json:"seconds"`
	WarmUpSeconds float64 `json:"warmUpSeconds"`
	PayloadBytes  int     `json:"payloadBytes"`
	Connections   int     `json:"connections"`
	Rounds        int     `json:"rounds"`
}

// SystemFacts describe a system: its version and settings.
type SystemFacts struct {
	Name  string `json:"name"`
	Facts []Fact `json:"facts"`
}

// Describe stores a system's facts once.
func (r *Report) Describe(name string, facts func() []Fact) {
	if !slices.ContainsFunc(r.Systems, func(s SystemFacts) bool { return s.Name == name }) {
		r.Systems = append(r.Systems, SystemFacts{Name: name, Facts: facts()})
	}
}

// LeaveOut notes that a system does not take part in a workload.
func (r *Report) LeaveOut(system string, w *Workload, lacks string) {
	text := fmt.Sprintf("%s, %s: no %s", system, w.Name, lacks)
	if !slices.Contains(r.LeftOut, text) {
		r.LeftOut = append(r.LeftOut, text)
	}
}

// Limit is the limit that a round has measured, or nil.
func (r *Report) Limit(w Workload, round int) *Result {
	i := slices.IndexFunc(r.Results, func(l Result) bool { return l.Limit && l.Workload == w && l.Round == round })
	if i < 0 {
		return nil
	}
	return &r.Results[i]
}

// RatiosOf returns the ratios of a result, which is not yet in r, to the limits of its round and to
// its system's append-unary.
func (r *Report) RatiosOf(res *Result) *Ratios {
	find := func(w Workload) *Result {
		if l := r.Limit(w, res.Round); l != nil {
			return l
		}
		return &Result{}
	}
	one := func(name string) *Result { return find(Workload{Name: name, Callers: 1, Batch: 1}) }
	var unary *Result
	for i := range r.Results {
		u := &r.Results[i]
		if u.Name == "append-unary" && u.System == res.System && u.Round == res.Round && (unary == nil || u.Callers > unary.Callers) {
			unary = u
		}
	}
	if res.Name == "append-unary" {
		unary = nil
	}
	return ratiosOf(res, find(res.Echo()), one(Fsync), one(SeqWrite), unary)
}

// Medians has one result for each limit and for each workload on each system, in the order in which
// they were first measured: that of the round with the median events a second.
func (r *Report) Medians() []Result {
	type subject struct {
		system string
		w      Workload
	}
	rounds := make(map[subject][]Result)
	var order []subject
	for i := range r.Results {
		s := subject{r.Results[i].System, r.Results[i].Workload}
		if rounds[s] == nil {
			order = append(order, s)
		}
		rounds[s] = append(rounds[s], r.Results[i])
	}
	var out []Result
	for _, s := range order {
		out = append(out, medianOf(rounds[s]))
	}
	return out
}

// Failures lists failed and unsent calls, one line a workload.
func (r *Report) Failures() []string {
	var out []string
	many := r.many()
	for i := range r.Results {
		res := &r.Results[i]
		add := func(what string, n uint64, errors map[string]uint64) {
			if n > 0 {
				out = append(out, failureText(name(res, many), what, n, errors))
			}
		}
		add("calls failed", total(res.Errors), res.Errors)
		add("calls were due and never sent", res.Unsent, nil)
		for _, read := range res.Reads {
			add(read.Name+" calls failed", total(read.Errors), read.Errors)
		}
	}
	return out
}

func total(errors map[string]uint64) uint64 {
	var n uint64
	for _, count := range errors {
		n += count
	}
	return n
}

// measuredFor describes the settings of the measurement.
func (s *Settings) measuredFor() string {
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	text := fmt.Sprintf("%v each after a warm-up of %v, payloads of %s bytes", seconds(s.Seconds), seconds(s.WarmUpSeconds), Grouped(s.PayloadBytes))
	if s.Connections > 1 {
		text += fmt.Sprintf(", %d connections", s.Connections)
	}
	if s.Rounds > 1 {
		text += fmt.Sprintf("; medians of %d rounds", s.Rounds)
	}
	return text
}
