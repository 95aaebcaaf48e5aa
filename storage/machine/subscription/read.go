package subscription

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage"
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
func Find(s *storage.Store, name Name) (sub *Subscription, err error) {
	err = view(s, func(r storage.TableReader) error {
		m, err := byName(r, name)
		if err == nil && m != nil {
			sub = decodeSubscription(m)
		}
		return err
	})
	return sub, err
}

// ByNumber returns a subscription; nil: it was deleted, or there never was one.
func ByNumber(s *storage.Store, n uint64) (sub *Subscription, err error) {
	err = view(s, func(r storage.TableReader) error {
		m, err := byNumber(r, n)
		if err == nil && m != nil {
			sub = decodeSubscription(m)
		}
		return err
	})
	return sub, err
}

// List returns at most n subscriptions of a tenant, in the order of their names: those after a
// name, or from the first on if it is zero. Without a tenant it returns those of any, and first
// those to all tenants. more: there are others behind them.
func List(s *storage.Store, tenant string, behind Name, n int) (list []*Subscription, more bool, err error) {
	err = view(s, func(r storage.TableReader) error {
		from := []byte(nameTable)
		if tenant != "" {
			from = namesOf(tenant)
		}
		end := after(from)
		if behind != (Name{}) {
			if next := append(nameKey(behind), 0); string(next) > string(from) {
				from = next
			}
		}
		if string(from) >= string(end) {
			return nil
		}
		for row, err := range r.Scan(from, end) {
			if err != nil {
				return err
			}
			if len(list) == n {
				more = true
				return nil
			}
			m, err := follow(r, row.Value)
			if err != nil {
				return err
			}
			list = append(list, decodeSubscription(m))
		}
		return nil
	})
	return list, more, err
}

// State is a subscription with all that its dispatcher goes on from, as of one moment.
type State struct {
	Subscription
	// Owed are the runs that owe events, by runId.
	Owed []OwedRun
	// Redriving are the dead letters that are due again, by runId and runSeq.
	Redriving []Place
}

// Load returns the state of a subscription; nil: it was deleted, or there never was one.
func Load(s *storage.Store, n uint64) (state *State, err error) {
	err = view(s, func(r storage.TableReader) error {
		m, err := byNumber(r, n)
		if err != nil || m == nil {
			return err
		}
		state = &State{Subscription: *decodeSubscription(m)}
		from, to := rowsOf(owedTable, n)
		for row, err := range r.Scan(from, to) {
			if err != nil {
				return err
			}
			m := &recordv1.Owed{}
			if err := proto.Unmarshal(row.Value, m); err != nil {
				return fmt.Errorf("%w %q: %w", errRow, row.Key, err)
			}
			state.Owed = append(state.Owed, OwedRun{RunID: string(row.Key[len(from):]), NextSeq: m.NextSeq, Attempts: m.Attempts})
		}
		marks := lettersOf(n, redrivenRow)
		for row, err := range r.Scan(marks, after(marks)) {
			if err != nil {
				return err
			}
			p, err := parsePlace(row.Key)
			if err != nil {
				return err
			}
			state.Redriving = append(state.Redriving, p)
		}
		return nil
	})
	return state, err
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
	err = view(s, func(r storage.TableReader) error {
		from := lettersOf(number, letterRow)
		if runID != "" {
			from = text(from, runID)
		}
		end := after(from)
		if behind != (Place{}) {
			if next := append(letterKey(number, letterRow, behind), 0); string(next) > string(from) {
				from = next
			}
		}
		if string(from) >= string(end) {
			return nil
		}
		for row, err := range r.Scan(from, end) {
			if err != nil {
				return err
			}
			if len(list) == n {
				more = true
				return nil
			}
			d, err := deadLetter(r, number, row)
			if err != nil {
				return err
			}
			list = append(list, d)
		}
		return nil
	})
	return list, more, err
}

func deadLetter(r storage.TableReader, number uint64, row storage.Row) (d DeadLetter, err error) {
	p, err := parsePlace(row.Key)
	if err != nil {
		return d, err
	}
	m := &recordv1.ParkedLetter{}
	if err := proto.Unmarshal(row.Value, m); err != nil {
		return d, fmt.Errorf("%w %q: %w", errRow, row.Key, err)
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
func DecodeWritten(rows []storage.Row) (w Written, err error) {
	for i := range rows {
		key, value := rows[i].Key, rows[i].Value
		switch {
		case key[0] != rowTable[0]:
		case value == nil:
			n, err := parseNumber(key[len(rowTable):])
			if err != nil {
				return w, err
			}
			w.Removed = append(w.Removed, n)
		default:
			m := &recordv1.Subscription{}
			if err := proto.Unmarshal(value, m); err != nil {
				return w, fmt.Errorf("%w %q: %w", errRow, key, err)
			}
			w.Changed = append(w.Changed, decodeSubscription(m))
		}
	}
	return w, nil
}

// view reads the tables as of one moment.
func view(s *storage.Store, read func(storage.TableReader) error) error {
	v, err := s.Tables(Kind)
	if err != nil {
		return err
	}
	return errors.Join(read(v), v.Close())
}

// byName returns the row of a subscription; nil: there is none by that name.
func byName(r storage.TableReader, name Name) (*recordv1.Subscription, error) {
	row, err := r.Get(nameKey(name))
	if err != nil || row == nil {
		return nil, err
	}
	return follow(r, row)
}

// follow returns the subscription that a row of the names leads to.
func follow(r storage.TableReader, row []byte) (*recordv1.Subscription, error) {
	n, err := parseNumber(row)
	if err != nil {
		return nil, err
	}
	m, err := byNumber(r, n)
	if err == nil && m == nil {
		err = fmt.Errorf("%w: subscription %d has a name and no row", errRow, n)
	}
	return m, err
}

// byNumber returns the row of a subscription; nil: there is none.
func byNumber(r storage.TableReader, n uint64) (*recordv1.Subscription, error) {
	m := &recordv1.Subscription{}
	if found, err := read(r, rowKey(n), m); err != nil || !found {
		return nil, err
	}
	return m, nil
}

// countOf returns how many subscriptions a tenant has.
func countOf(r storage.TableReader, tenant string) (uint64, error) {
	row, err := r.Get(countKey(tenant))
	if err != nil || row == nil {
		return 0, err
	}
	return parseNumber(row)
}

func read(r storage.TableReader, key []byte, m proto.Message) (found bool, err error) {
	row, err := r.Get(key)
	if err != nil || row == nil {
		return false, err
	}
	if err := proto.Unmarshal(row, m); err != nil {
		return false, fmt.Errorf("%w %q: %w", errRow, key, err)
	}
	return true, nil
}

func decodeSubscription(m *recordv1.Subscription) *Subscription {
	return &Subscription{
		Number: m.Number, Name: decodeName(m.Name), Settings: decodeSettings(m.Settings), Paused: m.Paused, CreatedAt: m.CreatedAt,
		Version: m.Version, Position: storage.Position(m.Position), Began: storage.Position(m.Began), CursorVersion: m.CursorVersion,
		OwedRuns: m.OwedRuns, DeadLetters: m.DeadLetters, Acknowledged: m.Acknowledged,
	}
}

func decodePlace(m *recordv1.EventPlace) Place {
	return Place{RunID: m.GetRunId(), RunSeq: m.GetRunSeq()}
}
