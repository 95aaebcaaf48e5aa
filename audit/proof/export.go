package proof

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"runlog/proto/contract"
)

// ExportTitle is the title of an export's statement.
const ExportTitle = "runlog export 1"

// Export is a cluster's statement about the events of a window (READ-4).
type Export struct {
	Cluster [16]byte
	// From, inclusive, and To, exclusive, in nanoseconds since 1970 of persistedAt.
	From, To int64
	// Filter: empty fields match everything.
	TenantID, ProjectID, EnvironmentID, PlanID, RunID, StepID string
	// any of them, in ascending order
	Types []string
	// Count of the events, and their digest (contract.WindowDigest).
	Count  uint64
	Digest contract.Digest
	// CompleteThrough is the time at or before which no event will ever be stamped again, in
	// nanoseconds since 1970.
	CompleteThrough int64
	// Position is how far the log was read.
	Position uint64
}

// Closed reports whether the window is closed: the same window has the same events forever.
func (e *Export) Closed() bool { return e.To <= e.CompleteThrough }

func (e *Export) filter() []struct {
	name string
	text *string
} {
	return []struct {
		name string
		text *string
	}{
		{"tenant", &e.TenantID}, {"project", &e.ProjectID}, {"environment", &e.EnvironmentID},
		{"plan", &e.PlanID}, {"run", &e.RunID}, {"step", &e.StepID},
	}
}

// Statement returns it as a cluster signs it.
func (e *Export) Statement() *Statement {
	s := &Statement{Title: ExportTitle}
	s.Add("cluster", fmt.Sprintf("%x", e.Cluster[:]))
	s.Add("from", FormatTime(e.From)).Add("to", FormatTime(e.To))
	for _, f := range e.filter() {
		if *f.text != "" {
			s.Add(f.name, Quote(*f.text))
		}
	}
	for _, t := range e.Types {
		s.Add("type", Quote(t))
	}
	s.Add("count", fmt.Sprint(e.Count)).Add("digest", e.Digest.String())
	return s.Add("complete-through", FormatTime(e.CompleteThrough)).Add("position", fmt.Sprint(e.Position))
}

// ParseExport reads an export's statement. Errors are ErrStatement.
func ParseExport(s *Statement) (*Export, error) {
	e := &Export{}
	err := s.Expect(ExportTitle)
	for _, step := range []func() error{
		func() error { return s.takeHex("cluster", e.Cluster[:]) },
		func() (err error) { e.From, err = s.TakeTime("from"); return err },
		func() (err error) { e.To, err = s.TakeTime("to"); return err },
		func() error { return e.takeFilter(s) },
		func() (err error) { e.Count, err = s.TakeNumber("count"); return err },
		func() error { return s.takeHex("digest", e.Digest[:]) },
		func() (err error) { e.CompleteThrough, err = s.TakeTime("complete-through"); return err },
		func() (err error) { e.Position, err = s.TakeNumber("position"); return err },
		s.End,
	} {
		if err == nil {
			err = step()
		}
	}
	if err != nil {
		return nil, err
	}
	return e, nil
}

func (e *Export) takeFilter(s *Statement) (err error) {
	for _, f := range e.filter() {
		if !s.Has(f.name) {
			continue
		}
		if *f.text, err = s.TakeText(f.name); err != nil {
			return err
		}
		if *f.text == "" {
			return fmt.Errorf("%w: an empty %s", ErrStatement, f.name)
		}
	}
	for s.Has("type") {
		t, err := s.TakeText("type")
		if err != nil {
			return err
		}
		e.Types = append(e.Types, t)
	}
	if !slices.IsSorted(e.Types) {
		return fmt.Errorf("%w: types are not in order", ErrStatement)
	}
	return nil
}

// takeHex is Take for bytes in lower-case hexadecimal digits.
func (s *Statement) takeHex(name string, dst []byte) error {
	text, err := s.Take(name)
	if err != nil {
		return err
	}
	if len(text) != 2*len(dst) || strings.ToLower(text) != text {
		return fmt.Errorf("%w: %s %q is not %d lower-case hexadecimal digits", ErrStatement, name, text, 2*len(dst))
	}
	if _, err := hex.Decode(dst, []byte(text)); err != nil {
		return fmt.Errorf("%w: %s %q is not hexadecimal", ErrStatement, name, text)
	}
	return nil
}
