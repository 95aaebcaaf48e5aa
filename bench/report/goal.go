package report

import (
	"strconv"
	"time"
)

// Goal is a figure of a report that is held to something: how large or small it must be.
type Goal struct {
	Measure string
	// Figure returns it, or false when it was not measured.
	Figure func(*Report) (float64, bool)
	// Must is the required figure; 0: the figure is only printed.
	Must float64
	// A harder requirement than Must; 0: none.
	Stretch float64
	// AtMost: smaller is better.
	AtMost bool
	// Duration: the figure and both requirements are in nanoseconds. Otherwise they are ratios.
	Duration bool
	// PerSecond: the figure and both requirements are rates.
	PerSecond bool
}

// Verdict is the outcome of a Goal.
type Verdict struct {
	Measure string `json:"measure"`
	// Figure and both requirements are ratios, or in the unit Unit.
	Figure  float64 `json:"figure"`
	Must    float64 `json:"must,omitempty"`
	Stretch float64 `json:"stretch,omitempty"`
	Unit    string  `json:"unit,omitempty"`
	AtMost  bool    `json:"atMost"`
	// Verdict is what Goal.Judge returns; empty without a requirement.
	Verdict string `json:"verdict,omitempty"`
}

// Judge compares the report with goals, and skips those that were not measured.
func (r *Report) Judge(goals []Goal) {
	r.Goals = nil
	for i := range goals {
		g := &goals[i]
		figure, ok := g.Figure(r)
		if !ok {
			continue
		}
		v := Verdict{Measure: g.Measure, Figure: figure, Must: g.Must, Stretch: g.Stretch, AtMost: g.AtMost, Verdict: g.Judge(figure)}
		if g.PerSecond {
			v.Unit = "/s"
		}
		if g.Duration {
			v.Unit = "ms"
			for _, field := range []*float64{&v.Figure, &v.Must, &v.Stretch} {
				*field = Milliseconds(time.Duration(*field))
			}
		}
		r.Goals = append(r.Goals, v)
	}
}

// Judge returns the field Verdict of a Verdict on a figure. The figure is in the unit of Must.
func (g *Goal) Judge(figure float64) string {
	met := func(than float64) bool { return g.AtMost && figure <= than || !g.AtMost && figure >= than }
	switch {
	case g.Must == 0:
		return ""
	case g.Stretch > 0 && met(g.Stretch):
		return "stretch"
	case met(g.Must):
		return "met"
	default:
		return "missed"
	}
}

// GoalTable lists each judged goal with its figure and verdict.
func (r *Report) GoalTable() Table {
	t := Table{Heads: []string{"MEASURE", "VALUE", "MUST", "STRETCH", ""}}
	for i := range r.Goals {
		v := &r.Goals[i]
		t.Rows = append(t.Rows, []string{v.Measure, v.text(), v.bound(v.Must), v.bound(v.Stretch), v.Verdict})
	}
	return t
}

func (v *Verdict) text() string {
	if v.Unit != "" {
		return threeDigits(v.Figure) + " " + v.Unit
	}
	return RatioText(v.Figure)
}

// bound is the requirement of a figure; empty without one.
func (v *Verdict) bound(than float64) string {
	if than == 0 {
		return ""
	}
	sign := "≥ "
	if v.AtMost {
		sign = "≤ "
	}
	text := sign + strconv.FormatFloat(than, 'g', -1, 64)
	if v.Unit != "" {
		text += " " + v.Unit
	}
	return text
}

// RatioOf is a Goal's figure: that of a divided by that of b, within each round, and the median of
// the rounds.
func RatioOf(figure func(*Result) float64, a, b Of) func(*Report) (float64, bool) {
	return func(r *Report) (float64, bool) { return r.Ratio(figure, a, b) }
}

// FigureOf is a Goal's figure: the rounds' figures of a, reduced by fold.
func FigureOf(figure func(*Result) float64, a Of, fold func([]float64) float64) func(*Report) (float64, bool) {
	return func(r *Report) (float64, bool) {
		var all []float64
		for i := range r.Results {
			res := &r.Results[i]
			// 0: nothing was measured.
			if a(res) && figure(res) > 0 {
				all = append(all, figure(res))
			}
		}
		if len(all) == 0 {
			return 0, false
		}
		return fold(all), true
	}
}
