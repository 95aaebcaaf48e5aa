package storagetest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"runlog/storage"
)

// SameOutcomes tells how two lists of outcomes differ, position included; nil when they do not.
func SameOutcomes(got, want []storage.Outcome) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d outcomes, want %d", len(got), len(want))
	}
	for i := range got {
		if err := sameOutcome(&got[i], &want[i]); err != nil {
			return fmt.Errorf("outcome %d: %w", i, err)
		}
	}
	return nil
}

func sameOutcome(got, want *storage.Outcome) error {
	if !reflect.DeepEqual(got.Err, want.Err) {
		return fmt.Errorf("error %s, want %s", show(got.Err), show(want.Err))
	}
	if got.Created != want.Created {
		return fmt.Errorf("created %t, want %t", got.Created, want.Created)
	}
	if len(got.Results) != len(want.Results) {
		return fmt.Errorf("%d results, want %d", len(got.Results), len(want.Results))
	}
	for i, r := range got.Results {
		if r != want.Results[i] {
			return fmt.Errorf("result %d is %+v, want %+v", i, r, want.Results[i])
		}
	}
	if len(got.Answers) != len(want.Answers) {
		return fmt.Errorf("%d answers, want %d", len(got.Answers), len(want.Answers))
	}
	for i := range got.Answers {
		if err := sameAnswer(&got.Answers[i], &want.Answers[i]); err != nil {
			return fmt.Errorf("operation %d: %w", i, err)
		}
	}
	if got.LastSeq != want.LastSeq || got.PersistedAt != want.PersistedAt || got.Position != want.Position {
		return fmt.Errorf("lastSeq %d, stamp %d, position %d; want %d, %d, %d",
			got.LastSeq, got.PersistedAt, got.Position, want.LastSeq, want.PersistedAt, want.Position)
	}
	return nil
}

func sameAnswer(got, want *storage.Answer) error {
	if !bytes.Equal(got.Reply, want.Reply) {
		return fmt.Errorf("reply %q, want %q", got.Reply, want.Reply)
	}
	return sameOutcome(&storage.Outcome{Err: got.Err, Results: got.Results, LastSeq: got.LastSeq},
		&storage.Outcome{Err: want.Err, Results: want.Results, LastSeq: want.LastSeq})
}

func show(err error) string { return fmt.Sprintf("%T %+v", err, err) }

// view turns what the model says into what a system under test shows.
type view interface {
	outcomes(model []storage.Outcome) []storage.Outcome
	run(model *storage.Run) *storage.Run
	records(model []storage.Record) []storage.Record
}

// atlas is the view from within, which shows all. It translates the model's positions, which count
// proposals, into those of the system.
type atlas []storage.Position

var _ view = atlas{}

func (a atlas) at(model storage.Position) storage.Position {
	if model == 0 {
		return 0
	}
	return a[model-1]
}

func (a atlas) outcomes(model []storage.Outcome) []storage.Outcome {
	out := slices.Clone(model)
	for i := range out {
		out[i].Position = a.at(out[i].Position)
	}
	return out
}

func (a atlas) run(model *storage.Run) *storage.Run {
	out := *model
	out.Position, out.CreatedPosition = a.at(out.Position), a.at(out.CreatedPosition)
	return &out
}

func (a atlas) records(model []storage.Record) []storage.Record {
	out := slices.Clone(model)
	for i := range out {
		out[i].Position = a.at(out[i].Position)
	}
	return out
}

// sameState compares all that a system says about its runs and its log with what the model says.
func sameState(got System, want *Model, positions atlas, names []string) error {
	a, b := got.Applied(), want.Applied()
	if a.Index != uint64(positions.at(b.Position())) || a.PersistedAt != b.PersistedAt || a.Events != b.Events {
		return fmt.Errorf("applied: index %d, stamp %d, %d events; want %d, %d, %d",
			a.Index, a.PersistedAt, a.Events, positions.at(b.Position()), b.PersistedAt, b.Events)
	}
	return errors.Join(sameRuns(got, want, positions, names), sameLog(got, want, positions), sameRows(got, want))
}

// sameRows compares the rows of the machine Writer, where a system shows them.
func sameRows(got System, want *Model) error {
	s, ok := got.(interface {
		Rows() (map[string]string, error)
	})
	if !ok {
		return nil
	}
	rows, err := s.Rows()
	if err != nil {
		return err
	}
	if !maps.Equal(rows, want.rows) {
		return fmt.Errorf("rows %q, want %q", rows, want.rows)
	}
	return nil
}

// sameRuns compares the runs of these names: those that the model has, and those that neither side
// may have.
func sameRuns(got Client, want *Model, seen view, names []string) error {
	for _, name := range names {
		if err := sameRun(got, want, seen, name); err != nil {
			return fmt.Errorf("run %q: %w", name, err)
		}
	}
	return nil
}

func sameRun(got Client, want *Model, seen view, name string) error {
	run, err := got.Run(name)
	model, missing := want.Run(name)
	if missing != nil {
		var none *storage.RunNotFoundError
		if !errors.As(err, &none) || none.RunID != name {
			return fmt.Errorf("is %+v, error %s; want %s", run, show(err), show(missing))
		}
		return nil
	}
	if err != nil {
		return err
	}
	if model = seen.run(model); !reflect.DeepEqual(run, model) {
		return fmt.Errorf("is %+v, metadata %+v; want %+v, metadata %+v", run, run.Metadata, model, model.Metadata)
	}
	// From the begin, and from the middle, as a reader that continues does (READ-1).
	for _, after := range []uint64{0, run.LastSeq / 2, run.LastSeq} {
		records, err := got.Events(name, after)
		if err != nil {
			return fmt.Errorf("events after %d: %w", after, err)
		}
		expected, _ := want.Events(name, after)
		if err := sameRecords(records, seen.records(expected)); err != nil {
			return fmt.Errorf("events after %d: %w", after, err)
		}
		if after > 0 {
			continue
		}
		if err := Verify(run, records); err != nil {
			return err
		}
	}
	return nil
}

func sameRecords(got, want []storage.Record) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d records, want %d", len(got), len(want))
	}
	for i := range got {
		if !reflect.DeepEqual(got[i], want[i]) {
			return fmt.Errorf("record %d is\n%+v, want\n%+v", i, got[i], want[i])
		}
	}
	return nil
}

// logItem is a record in the log, or the mark of a run that was made or whose metadata changed.
type logItem struct {
	at     storage.Position
	stamp  int64
	run    string
	record *storage.Record
}

// flatten puts the log into a form without blocks: the records in their order, and after those of a
// position its marks, sorted.
func flatten(commits []storage.Commit) ([]logItem, error) {
	var items []logItem
	var last storage.Position
	for i := range commits {
		c := &commits[i]
		if c.Position < last {
			return nil, fmt.Errorf("log goes back from position %d to %d", last, c.Position)
		}
		last = c.Position
		if c.Run == nil {
			return nil, errors.New("a commit names no run")
		}
		if len(c.Records) == 0 {
			items = append(items, logItem{c.Position, c.PersistedAt, c.Run.RunID, nil})
		}
		for k := range c.Records {
			r := &c.Records[k]
			if r.Position != c.Position || r.PersistedAt != c.PersistedAt || r.RunID != c.Run.RunID {
				return nil, fmt.Errorf("commit at %d, stamp %d, of run %q holds %+v", c.Position, c.PersistedAt, c.Run.RunID, r)
			}
			items = append(items, logItem{c.Position, c.PersistedAt, c.Run.RunID, r})
		}
	}
	slices.SortStableFunc(items, func(a, b logItem) int {
		if c := cmp.Compare(a.at, b.at); c != 0 {
			return c
		}
		switch {
		case a.record == nil && b.record == nil:
			return cmp.Compare(a.run, b.run)
		case a.record == nil:
			return 1
		case b.record == nil:
			return -1
		}
		return 0
	})
	return items, nil
}

// sameLog compares the logs, whole and from a place in the middle (READ-3).
func sameLog(got System, want *Model, positions atlas) error {
	count := storage.Position(len(positions))
	for _, after := range []storage.Position{0, count / 2, count} {
		commits, err := got.Log(positions.at(after))
		if err != nil {
			return fmt.Errorf("log after %d: %w", positions.at(after), err)
		}
		items, err := flatten(commits)
		if err != nil {
			return err
		}
		model, _ := want.Log(after)
		expected, err := flatten(model)
		if err != nil {
			return err
		}
		if len(items) != len(expected) {
			return fmt.Errorf("log after %d has %d items, want %d", positions.at(after), len(items), len(expected))
		}
		for i := range items {
			if err := sameItem(items[i], expected[i], positions); err != nil {
				return fmt.Errorf("log after %d, item %d: %w", positions.at(after), i, err)
			}
		}
	}
	return nil
}

func sameItem(got, want logItem, positions atlas) error {
	if got.at != positions.at(want.at) || got.stamp != want.stamp || got.run != want.run || (got.record == nil) != (want.record == nil) {
		return fmt.Errorf("is %+v, want %+v", got, want)
	}
	if got.record == nil {
		return nil
	}
	return sameRecords([]storage.Record{*got.record}, positions.records([]storage.Record{*want.record}))
}
