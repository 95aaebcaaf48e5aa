package plan

import (
	"fmt"
	"slices"
	"time"

	"runlog/proto/contract"
	"runlog/proto/contract/jsontext"
	"runlog/proto/contract/secrets"
)

// plan reads the members of a plan of the current version.
func (d *decoder) plan(p *Plan, body []byte) {
	var version, onFailure string
	d.object(nil, body, []member{
		{"schemaVersion", true, d.text(&version, nil)}, // It was read before.
		{"planId", true, d.text(&p.PlanID, contract.NameFault)},
		{"planVersion", true, d.text(&p.PlanVersion, contract.NameFault)},
		{"onFailure", false, d.text(&onFailure, onFailureFault)},
		{"steps", true, func(at *place, value []byte) {
			d.array(at, value, 1, MaxSteps, func(at *place, value []byte) {
				p.Steps = append(p.Steps, Step{})
				d.step(at, value, &p.Steps[len(p.Steps)-1])
			})
		}},
	})
	p.Waits = onFailure == OnFailureWait
}

func onFailureFault(text string) string {
	if text != OnFailureFail && text != OnFailureWait {
		return fmt.Sprintf("is %s: write %s or %s", quote(text), OnFailureFail, OnFailureWait)
	}
	return ""
}

func (d *decoder) step(at *place, value []byte, s *Step) {
	contracted := false
	is := d.object(at, value, []member{
		{"stepId", true, d.text(&s.ID, contract.StepFault)},
		{"type", true, d.text(&s.Type, contract.NameFault)},
		{"dependsOn", false, d.texts(&s.DependsOn, maxDependsOn, contract.NameFault)},
		{"class", false, d.text(&s.Class, classFault)},
		{"dispatch", false, func(at *place, value []byte) {
			d.object(at, value, []member{{"taskQueue", true, d.text(&s.TaskQueue, contract.NameFault)}})
		}},
		{"secretRefs", false, d.texts(&s.SecretRefs, maxSecretRefs, secretFault)},
		{"inputs", false, func(_ *place, value []byte) { s.Inputs = value }},
		{"computeContract", false, func(at *place, value []byte) {
			contracted = true
			s.Contract = &Contract{}
			d.contract(at, value, s.Contract)
		}},
		{"retry", false, func(at *place, value []byte) { d.retry(at, value, &s.Retry) }},
		{"timeout", false, d.duration(&s.Timeout)},
		{"when", false, func(at *place, value []byte) { d.when(at, value, s) }},
	})
	switch {
	case !is || s.Type == "":
	case s.Type == Compute && !contracted:
		d.add(at.member("computeContract"), "is required: a compute step says what an operator attests")
	case s.Type != Compute && contracted:
		d.add(at.member("computeContract"), "is for steps of the type %s alone: remove it", Compute)
	}
}

// maxContract bounds a contract in bytes. The event of the waiting step and that of its attestation
// have a copy.
const maxContract = 24 << 10

func (d *decoder) contract(at *place, value []byte, c *Contract) {
	if len(value) > maxContract {
		d.add(at, "has %d bytes: at most %d are allowed: name what is long by a URI", len(value), maxContract)
		return
	}
	d.object(at, value, []member{
		{"executor", true, d.text(&c.Executor, wordsFault)},
		{"inputs", true, d.texts(&c.Inputs, maxItems, wordsFault)},
		{"outputs", true, d.texts(&c.Outputs, maxItems, wordsFault)},
		{"verification", true, d.text(&c.Verification, func(text string) string {
			if text != OperatorAttest {
				return fmt.Sprintf("is %s: write %s", quote(text), OperatorAttest)
			}
			return ""
		})},
		{"notes", false, d.text(&c.Notes, nil)},
		{"timeout_minutes", false, d.integer(&c.TimeoutMinutes, 1, 10*366*24*60)},
		{"approvals", false, d.integer(&c.Approvals, 1, 20)},
	})
}

func (d *decoder) retry(at *place, value []byte, r *Retry) {
	d.object(at, value, []member{
		{"maxAttempts", false, d.integer(&r.MaxAttempts, 1, 1000)},
		{"initial", false, d.duration(&r.Initial)}, {"max", false, d.duration(&r.Max)},
	})
	if r.Max > 0 && r.Initial > r.Max {
		d.add(at.member("max"), "is below initial")
	}
}

// maxDuration bounds timeouts and delays.
const maxDuration = 366 * 24 * time.Hour

// duration reads a duration such as 90s or 1.5h.
func (d *decoder) duration(to *time.Duration) func(*place, []byte) {
	var text string
	return d.text(&text, func(text string) string {
		n, err := time.ParseDuration(text)
		if err != nil || n <= 0 || n > maxDuration || text[0] == '+' {
			return fmt.Sprintf("is %s: write a duration up to a year, such as 90s, 15m or 1.5h", quote(text))
		}
		*to = n
		return ""
	})
}

func classFault(text string) string {
	switch text {
	case "control", "data", "isolation":
		return ""
	}
	return fmt.Sprintf("is %s: write control, data or isolation", quote(text))
}

const maxWords = 256

func wordsFault(text string) string {
	if text == "" || len(text) > maxWords {
		return fmt.Sprintf("has %d bytes: write 1 to %d", len(text), maxWords)
	}
	return ""
}

// secretFault checks a reference to a secret: the scheme of a provider, a colon, and a name.
func secretFault(text string) string {
	if kind, _ := secrets.Find([]byte(text)); kind != "" {
		return fmt.Sprintf("is a secret (%s), and not a reference to one: write a reference, such as env:TOKEN", kind)
	}
	for i, c := range []byte(text) {
		switch {
		case c == ':' && i > 0 && i < len(text)-1 && len(text) <= maxWords:
			return ""
		case c >= 'a' && c <= 'z' || i > 0 && c >= '0' && c <= '9':
		default:
			return fmt.Sprintf("is %s: write a reference, such as env:TOKEN", quote(text))
		}
	}
	return fmt.Sprintf("is %s: write a reference, such as env:TOKEN", quote(text))
}

// secrets reports the innermost values that have a secret, and whether there is one: plans are read
// by many, and kept (ENG-7).
func (d *decoder) secrets(at *place, value []byte) (found bool) {
	kind, _ := secrets.FindJSON(value)
	if kind == "" {
		return false
	}
	inner := false
	switch value[0] {
	case '{':
		for c := jsontext.Members(value); ; {
			name, v, ok := c.Member()
			if !ok {
				break
			}
			inner = d.secrets(at.member(string(name)), v) || inner
		}
	case '[':
		c := jsontext.Elements(value)
		for i := 0; ; i++ {
			v, ok := c.Element()
			if !ok {
				break
			}
			inner = d.secrets(at.element(i), v) || inner
		}
	}
	path := at.pointer()
	known := slices.ContainsFunc(d.list, func(f Fault) bool { return f.Path == path })
	if !inner && !known {
		d.add(at, "has a secret (%s): plans are kept; put a reference into secretRefs", kind)
	}
	return true
}
