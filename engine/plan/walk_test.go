package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestGoldenWalksPLAN5 walks the plans of testdata/walks with the results that their files have. A
// result comes as soon as its step is decided, but for the late ones of the file.
func TestGoldenWalksPLAN5(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/walks/*.json")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var story struct {
			Plan    json.RawMessage `json:"plan"`
			Results map[string]struct {
				Status Status          `json:"status"`
				Output json.RawMessage `json:"output"`
			} `json:"results"`
			// Late are steps whose results come last, in this order.
			Late []string `json:"late"`
		}
		if err := json.Unmarshal(body, &story); err != nil {
			t.Fatal(file, err)
		}
		p, _, err := Parse(story.Plan, Options{})
		if err != nil {
			t.Fatal(file, err)
		}
		var text strings.Builder
		w := NewWalk(p)
		done := func(id string) {
			r := Result{Success, nil}
			if x, ok := story.Results[id]; ok {
				r = Result{x.Status, x.Output}
			}
			fmt.Fprintf(&text, "%-8s %s %s\n", "", id, r.Status)
			if err := w.Done(id, r); err != nil {
				t.Fatal(file, err)
			}
		}
		late := slices.Clone(story.Late)
		for {
			d, ok := w.Next()
			if !ok {
				if len(late) == 0 {
					break
				}
				done(late[0])
				late = late[1:]
				continue
			}
			fmt.Fprintln(&text, strings.TrimSpace(fmt.Sprintf("%-8s %s %s", d.Kind, d.Step.ID, d.Reason)))
			if d.Kind != Skip && !slices.Contains(story.Late, d.Step.ID) {
				done(d.Step.ID)
			}
		}
		status, ended := w.Ended()
		fmt.Fprintf(&text, "ended: %t %s, under way: %d\n", ended, status, w.UnderWay())
		golden(t, filepath.Join("walks", strings.TrimSuffix(filepath.Base(file), ".json")+".txt"), text.String())
	}
}

// drawPlan draws a plan, and what becomes of its steps.
func drawPlan(t *rapid.T) (*Plan, map[string]Result) {
	n := rapid.IntRange(1, 12).Draw(t, "steps")
	results := map[string]Result{}
	order := rapid.Permutation(slices.Collect(func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	})).Draw(t, "order")
	texts := make([]string, n) // In the text, a step may stand before those that it depends on.
	for i := range n {
		var deps, when []string
		for j := range i {
			if rapid.IntRange(0, 3).Draw(t, "depends") > 0 {
				continue
			}
			deps = append(deps, fmt.Sprintf(`"s%d"`, j))
			switch rapid.IntRange(0, 5).Draw(t, "when") {
			case 0:
				status := rapid.SampledFrom([]string{"SUCCESS", "FAILED", "SKIPPED", "ANY"}).Draw(t, "wanted")
				when = append(when, fmt.Sprintf(`{"step":"s%d","status":%q}`, j, status))
			case 1:
				when = append(when, fmt.Sprintf(`{"step":"s%d","output":"/n","equals":%d}`, j, rapid.IntRange(0, 1).Draw(t, "n")))
			}
		}
		kind := `"type":"noop"`
		if rapid.IntRange(0, 4).Draw(t, "compute") == 0 {
			kind = `"type":"compute","computeContract":{"executor":"x","inputs":[],"outputs":[],"verification":"operator_attest"}`
		}
		more := ""
		if len(when) > 0 {
			more = `,"when":[` + strings.Join(when, ",") + `]`
		}
		texts[order[i]] = fmt.Sprintf(`{"stepId":"s%d",%s,"dependsOn":[%s]%s}`, i, kind, strings.Join(deps, ","), more)
		results[fmt.Sprint("s", i)] = Result{
			rapid.SampledFrom([]Status{Success, Success, Success, Failed, Skipped}).Draw(t, "result"),
			fmt.Appendf(nil, `{"n":%d}`, rapid.IntRange(0, 1).Draw(t, "output")),
		}
	}
	p, _, err := Parse(planOf(strings.Join(texts, ",")), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p, results
}

// model decides by looking at all steps again, each time. It knows no heap and no counts.
type model struct {
	p       *Plan
	decided map[string]bool
	ends    map[string]Result
}

func (m *model) next() (Decision, bool) {
	for i := range m.p.Steps {
		s := &m.p.Steps[i]
		open := func(id string) bool { _, ended := m.ends[id]; return !ended }
		if m.decided[s.ID] || slices.ContainsFunc(s.DependsOn, open) {
			continue
		}
		m.decided[s.ID] = true
		skip := func(reason string) (Decision, bool) {
			m.ends[s.ID] = Result{Status: Skipped}
			return Decision{Skip, s, reason}, true
		}
		for _, id := range s.DependsOn {
			excused := slices.ContainsFunc(s.When, func(c Condition) bool { return c.Step == id && c.Status != "" })
			if m.ends[id].Status != Success && !excused {
				return skip(ReasonDependency)
			}
		}
		for _, c := range s.When {
			end := m.ends[c.Step]
			switch {
			case c.Status == "" && end.Status != Success, c.Status != "" && c.Status != "ANY" && c.Status != end.Status:
				return skip(ReasonCondition)
			case c.Equals != nil:
				var v struct{ N json.Number }
				if json.Unmarshal(end.Output, &v) != nil || v.N.String() != string(c.Equals) {
					return skip(ReasonCondition)
				}
			}
		}
		if s.Type == Compute {
			return Decision{Kind: Attest, Step: s}, true
		}
		return Decision{Kind: Run, Step: s}, true
	}
	return Decision{}, false
}

// TestWalkPLAN5: whatever the order in which results come, the walk decides as the model does, and
// a walk that gets the results of another one's log again goes on where that one stood.
func TestWalkPLAN5(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p, results := drawPlan(t)
		w, m := NewWalk(p), &model{p: p, decided: map[string]bool{}, ends: map[string]Result{}}
		var open []string
		for {
			if rapid.IntRange(0, 8).Draw(t, "resume") == 0 {
				w = resumed(t, p, m, open)
			}
			finish := len(open) > 0 && rapid.Bool().Draw(t, "a result comes")
			if !finish {
				got, ok := w.Next()
				want, more := m.next()
				if ok != more || got.Kind != want.Kind || got.Step != want.Step || got.Reason != want.Reason {
					t.Fatalf("%+v, %t, want %+v, %t", got, ok, want, more)
				}
				if ok && got.Kind != Skip {
					open = append(open, got.Step.ID)
				}
				if ok || len(open) == 0 {
					if !ok {
						break
					}
					continue
				}
			}
			i := rapid.IntRange(0, len(open)-1).Draw(t, "of")
			id := open[i]
			open = slices.Delete(open, i, i+1)
			m.ends[id] = results[id]
			follows := w.Following(id, results[id])
			if err := w.Done(id, results[id]); err != nil {
				t.Fatal(err)
			}
			if w.UnderWay() != len(open) {
				t.Fatalf("%d are under way, want %d", w.UnderWay(), len(open))
			}
			later := model{p, maps.Clone(m.decided), maps.Clone(m.ends)}
			if want, _ := later.next(); follows != want {
				t.Fatalf("%+v follows %s, want %+v", follows, id, want)
			}
		}
		status, ended := w.Ended()
		want := Success
		if slices.ContainsFunc(slices.Collect(maps.Values(m.ends)), func(r Result) bool { return r.Status == Failed }) {
			want = Failed
		}
		if !ended || status != want || len(m.ends) != len(p.Steps) {
			t.Fatalf("ended: %t as %s, want %s; %d of %d steps", ended, status, want, len(m.ends), len(p.Steps))
		}
	})
}

// resumed returns a new walk that got what the model knows: the ends of steps, and which of the
// others are under way.
func resumed(t *rapid.T, p *Plan, m *model, open []string) *Walk {
	w, err := Resume(p, func(id string) Standing { return Standing{UnderWay: slices.Contains(open, id), Result: m.ends[id]} })
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestWalkRefusals: what cannot be is refused, and changes nothing.
func TestWalkRefusals(t *testing.T) {
	t.Parallel()
	p, _, err := Parse(planOf(`{"stepId":"a","type":"noop"},{"stepId":"b","type":"noop","dependsOn":["a"]}`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := NewWalk(p)
	ok := Result{Success, nil}
	if w.Done("a", ok) == nil || w.Done("none", ok) == nil {
		t.Error("a step that was not decided has ended")
	}
	w.Next()
	if w.Done("a", Result{"DONE", nil}) == nil || w.Done("b", ok) == nil {
		t.Error("an unknown status is taken, or a step that waits has ended")
	}
	if err := w.Done("a", Result{Success, json.RawMessage(`1`)}); err != nil {
		t.Fatal(err)
	}
	if w.Done("a", ok) == nil {
		t.Error("a step has ended twice")
	}
	if r, ended := w.Result("a"); !ended || string(r.Output) != "1" {
		t.Error(r, ended)
	}
	if _, ended := w.Result("b"); ended {
		t.Error("b has ended")
	}
	if up := w.Upstream(p.Step("b")); len(up) != 1 || string(up["a"]) != "1" {
		t.Error(up)
	}
}

// TestResumePLAN5: what a log has of a step holds after a retry of a step that it depends on, and
// is refused without one.
func TestResumePLAN5(t *testing.T) {
	t.Parallel()
	p, _, err := Parse(planOf(`{"stepId":"a","type":"noop"},{"stepId":"b","type":"noop","dependsOn":["a"]},
		{"stepId":"clean","type":"noop","dependsOn":["a"],"when":[{"step":"a","status":"FAILED"}]},{"stepId":"end","type":"noop","dependsOn":["b","clean"]}`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	of := func(known map[string]Standing) func(string) Standing {
		return func(id string) Standing { return known[id] }
	}
	failed, ok := Result{Status: Failed}, Result{Status: Success}
	for name, known := range map[string]map[string]Standing{
		"early":   {"b": {UnderWay: true}},
		"skipped": {"a": {Result: failed}, "b": {Result: ok}},
		"cleaned": {"a": {Result: ok}, "clean": {Result: ok}},
	} {
		if _, err := Resume(p, of(known)); err == nil {
			t.Errorf("%s: no error", name)
		}
		a := known["a"]
		if a.Again = true; name != "early" {
			known["a"] = a
		} else {
			known["a"] = Standing{Again: true}
		}
		if _, err := Resume(p, of(known)); err != nil {
			t.Errorf("%s, after a retry: %v", name, err)
		}
	}
	// The retry of a is open: clean has run, b was skipped, and both b and end are decided again.
	w, err := Resume(p, of(map[string]Standing{"a": {Again: true}, "clean": {Result: ok}, "b": {Again: true}}))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a", "b", "end"} {
		d, more := w.Next()
		if !more || d.Kind != Run || d.Step.ID != want {
			t.Fatalf("%+v, %t, want %s", d, more, want)
		}
		if _, more := w.Next(); more {
			t.Fatalf("a decision while %s runs", want)
		}
		if err := w.Done(want, ok); err != nil {
			t.Fatal(err)
		}
	}
	if status, ended := w.Ended(); !ended || status != Success || w.UnderWay() != 0 {
		t.Error(status, ended, w.UnderWay())
	}
}

// largePlan is a plan of layers, each step of which depends on some of the layer before.
func largePlan(tb testing.TB, steps int) *Plan {
	tb.Helper()
	var text strings.Builder
	for i := range steps {
		var deps []string
		for j := range min(3, i/100*3) {
			deps = append(deps, fmt.Sprintf(`"step-%d"`, (i/100-1)*100+(i*7+j*31)%100))
		}
		slices.Sort(deps)
		if i > 0 {
			text.WriteString(",")
		}
		fmt.Fprintf(&text, `{"stepId":"step-%d","type":"noop","dependsOn":[%s]}`, i, strings.Join(slices.Compact(deps), ","))
	}
	p, _, err := Parse(planOf(text.String()), Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func walkAll(tb testing.TB, p *Plan) {
	w := NewWalk(p)
	for d, ok := w.Next(); ok; d, ok = w.Next() {
		if err := w.Done(d.Step.ID, Result{Status: Success}); err != nil {
			tb.Fatal(err)
		}
	}
	if status, ended := w.Ended(); !ended || status != Success {
		tb.Fatal(status, ended)
	}
}

func BenchmarkWalk(b *testing.B) {
	p := largePlan(b, MaxSteps)
	for b.Loop() {
		walkAll(b, p)
	}
}
