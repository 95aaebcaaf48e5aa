package subscription

import (
	"fmt"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage"
	"runlog/storage/table"
)

// Subscription is a subscription as of one moment.
type Subscription struct {
	Number    uint64 // never used again
	Name      Name
	Settings  Settings
	Paused    bool
	CreatedAt int64  // nanoseconds since 1970
	Version   uint64 // rises by 1 with every change
	// Position of the cursor. Every event of entries up to it is settled, but for those that
	// OwedRuns runs owe.
	Position storage.Position
	// Began is the position of Create, or of the last Seek. Nothing up to it is due.
	Began storage.Position
	// CursorVersion rises by 1 with every Settle that has effect, and with every Seek, also one to
	// where the cursor is. If it is not as a dispatcher expects, other events are due.
	CursorVersion uint64
	// OwedRuns and DeadLetters, redriven ones included, are counts.
	OwedRuns, DeadLetters uint64
	// Acknowledged counts the events that were acknowledged since the creation.
	Acknowledged uint64
}

// Find returns a subscription; nil: there is none by that name.
func Find(s *storage.Store, name Name) (*Subscription, error) {
	return storage.ReadTables(s, Kind, func(r table.Reader) (*Subscription, error) {
		m, err := byName(r, name)
		return decodeSubscription(m), err
	})
}

// ByNumber returns a subscription; nil: it was deleted, or there never was one.
func ByNumber(s *storage.Store, n uint64) (*Subscription, error) {
	return storage.ReadTables(s, Kind, func(r table.Reader) (*Subscription, error) {
		m, err := byNumber(r, n)
		return decodeSubscription(m), err
	})
}

// List returns at most n subscriptions of a tenant, in the order of their names: those after a
// name, or from the first on if it is zero. Without a tenant it returns those of any, and first
// those to all tenants. more: there are others behind them.
func List(s *storage.Store, tenant string, behind Name, n int) (list []*Subscription, more bool, err error) {
	within := table.In(nameTable)
	if tenant != "" {
		within = namesOf(tenant)
	}
	list, err = storage.ReadTables(s, Kind, func(r table.Reader) (list []*Subscription, err error) {
		list, more, err = table.Page(r, within, nameKey(behind), n, func(row table.Row) (*Subscription, error) {
			n, err := table.DecodeNumber(row)
			if err != nil {
				return nil, err
			}
			m, err := follow(r, n)
			return decodeSubscription(m), err
		})
		return list, err
	})
	return list, more, err
}

// State is a subscription with all that its dispatcher continues from, as of one moment.
type State struct {
	Subscription
	// Owed are the runs that owe events, by runId.
	Owed []OwedRun
	// Redriving are the dead letters that are due again, by runId and runSeq.
	Redriving []Place
}

// Load returns the state of a subscription; nil: it was deleted, or there never was one.
func Load(s *storage.Store, n uint64) (*State, error) {
	return storage.ReadTables(s, Kind, func(r table.Reader) (*State, error) {
		m, err := byNumber(r, n)
		if err != nil || m == nil {
			return nil, err
		}
		state := &State{Subscription: *decodeSubscription(m)}
		owed := rowsOf(owedTable, n)
		for row, err := range r.Scan(owed, owed.After()) {
			if err != nil {
				return nil, err
			}
			m, err := table.Decode[recordv1.Owed](row)
			if err != nil {
				return nil, err
			}
			state.Owed = append(state.Owed, OwedRun{RunID: string(row.Key[len(owed):]), NextSeq: m.NextSeq, Attempts: m.Attempts})
		}
		marks := lettersOf(n, redrivenRow)
		for row, err := range r.Scan(marks, marks.After()) {
			if err != nil {
				return nil, err
			}
			p, err := parsePlace(row.Key)
			if err != nil {
				return nil, err
			}
			state.Redriving = append(state.Redriving, p)
		}
		return state, nil
	})
}

// DeadLetter is an event that was parked.
type DeadLetter struct {
	ParkedEvent
	ParkedAt int64 // nanoseconds since 1970
	// Redriving: it is due again.
	Redriving bool
}

// DeadLetters returns at most n dead letters of a subscription, by runId and runSeq: those after a
// place, or from the first on if it is zero. With a runId it returns those of the run. more: there
// are others behind them. A subscription that does not exist has none.
func DeadLetters(s *storage.Store, number uint64, runID string, behind Place, n int) (list []DeadLetter, more bool, err error) {
	within := lettersOf(number, letterRow)
	if runID != "" {
		within = within.Text(runID)
	}
	list, err = storage.ReadTables(s, Kind, func(r table.Reader) (list []DeadLetter, err error) {
		list, more, err = table.Page(r, within, letterKey(number, letterRow, behind), n, func(row table.Row) (DeadLetter, error) {
			return deadLetter(r, number, row)
		})
		return list, err
	})
	return list, more, err
}

func deadLetter(r table.Reader, number uint64, row table.Row) (d DeadLetter, err error) {
	p, err := parsePlace(row.Key)
	if err != nil {
		return d, err
	}
	m, err := table.Decode[recordv1.ParkedLetter](row)
	if err != nil {
		return d, err
	}
	mark, err := r.Get(letterKey(number, redrivenRow, p))
	return DeadLetter{
		ParkedEvent: ParkedEvent{Place: p, EventID: m.EventId, EventType: m.EventType, Attempts: m.Attempts, Error: m.Error},
		ParkedAt:    m.ParkedAt, Redriving: mark != nil,
	}, err
}

// Written is what an entry has changed.
type Written struct {
	// Changed are the subscriptions that were made or have changed, as they are now, by number.
	Changed []*Subscription
	// Removed are the numbers of those that were deleted. A number may never have been seen: one
	// entry may make and delete a subscription.
	Removed []uint64
}

// DecodeWritten decodes the rows of which storage.Store.WatchRows tells. Whatever changes of a
// subscription, its own row does too, with a higher version.
func DecodeWritten(rows []table.Row) (w Written, err error) {
	for i := range rows {
		key, value := rows[i].Key, rows[i].Value
		switch {
		case key[0] != rowTable[0]:
		case value == nil:
			n, err := table.DecodeNumber(table.Row{Key: key, Value: key[len(rowTable):]})
			if err != nil {
				return w, err
			}
			w.Removed = append(w.Removed, n)
		default:
			m, err := table.Decode[recordv1.Subscription](rows[i])
			if err != nil {
				return w, err
			}
			w.Changed = append(w.Changed, decodeSubscription(m))
		}
	}
	return w, nil
}

// byName returns the row of a subscription; nil: there is none by that name.
func byName(r table.Reader, name Name) (*recordv1.Subscription, error) {
	n, err := table.GetNumber(r, nameKey(name))
	if err != nil || n == 0 {
		return nil, err
	}
	return follow(r, n)
}

// follow returns the subscription that a row of the names leads to.
func follow(r table.Reader, n uint64) (*recordv1.Subscription, error) {
	m, err := byNumber(r, n)
	if err == nil && m == nil {
		err = fmt.Errorf("%w: subscription %d has a name and no row", table.ErrRow, n)
	}
	return m, err
}

// byNumber returns the row of a subscription; nil: there is none.
func byNumber(r table.Reader, n uint64) (*recordv1.Subscription, error) {
	return table.Get[recordv1.Subscription](r, rowKey(n))
}

// countOf returns how many subscriptions a tenant has.
func countOf(r table.Reader, tenant string) (uint64, error) {
	return table.GetNumber(r, countKey(tenant))
}

// decodeSubscription returns the subscription of a row; nil: there is no row.
func decodeSubscription(m *recordv1.Subscription) *Subscription {
	if m == nil {
		return nil
	}
	return &Subscription{
		Number: m.Number, Name: decodeName(m.Name), Settings: decodeSettings(m.Settings), Paused: m.Paused, CreatedAt: m.CreatedAt,
		Version: m.Version, Position: storage.Position(m.Position), Began: storage.Position(m.Began), CursorVersion: m.CursorVersion,
		OwedRuns: m.OwedRuns, DeadLetters: m.DeadLetters, Acknowledged: m.Acknowledged,
	}
}

func decodePlace(m *recordv1.EventPlace) Place {
	return Place{RunID: m.GetRunId(), RunSeq: m.GetRunSeq()}
}
