package subscription

import (
	"google.golang.org/protobuf/proto"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage"
	"runlog/storage/table"
)

func (w *work) settle(m *recordv1.SettleSubscriptions) (reply proto.Message, fatal error) {
	settled := make([]bool, len(m.Items))
	for i, item := range m.Items {
		if settled[i], fatal = w.settleItem(item); fatal != nil {
			return nil, fatal
		}
	}
	return &recordv1.SettleReply{Settled: settled}, nil
}

// settleItem tells whether an item has effect.
func (w *work) settleItem(m *recordv1.Settlement) (bool, error) {
	s, err := byNumber(w.tx, m.Number)
	if err != nil || s == nil || s.Version != m.Version || !w.mayMove(s.Position, m.Position) {
		return false, err
	}
	rows := &staged{tx: w.tx, rows: map[string][]byte{}}
	if err := rows.owe(s, m); err != nil {
		return false, err
	}
	if err := rows.park(s, m); err != nil {
		return false, err
	}
	if s.OwedRuns > MaxOwed || s.DeadLetters > MaxDeadLetters {
		return false, nil
	}
	rows.write()
	s.Position = m.Position
	s.Acknowledged += m.Acknowledged
	s.CursorVersion++
	return true, w.change(s)
}

// mayMove tells whether an item may move a cursor. The dispatcher has read no entry from that of
// the command on: what is stored there would be skipped (BUS-6).
func (w *work) mayMove(from, to uint64) bool {
	return to == from || to > from && to < uint64(w.tx.Position())
}

// staged are the rows of an item, which are written together or not at all.
type staged struct {
	tx   *storage.Tx
	rows map[string][]byte // nil: deleted
	keys []string          // of rows, in the order in which they came
}

// owe stages what runs owe. Where an item says both, the run owes: nothing is skipped.
func (s *staged) owe(sub *recordv1.Subscription, m *recordv1.Settlement) error {
	for _, runID := range m.Paid {
		if err := s.put(owedKey(sub.Number, runID), nil, &sub.OwedRuns); err != nil {
			return err
		}
	}
	for _, o := range m.Owed {
		row, err := table.Encode(&recordv1.Owed{NextSeq: o.NextSeq, Attempts: o.Attempts})
		if err != nil {
			return err
		}
		if err := s.put(owedKey(sub.Number, o.RunId), row, &sub.OwedRuns); err != nil {
			return err
		}
	}
	return nil
}

// park stages dead letters. Where an item says both, the event is parked: nothing is skipped.
func (s *staged) park(sub *recordv1.Subscription, m *recordv1.Settlement) error {
	marks := uint64(0) // not counted in the row
	for _, d := range m.Delivered {
		mark, letter := letterKey(sub.Number, redrivenRow, decodePlace(d)), letterKey(sub.Number, letterRow, decodePlace(d))
		redriven, err := s.has(mark)
		if err != nil {
			return err
		}
		if !redriven {
			continue
		}
		if err := s.put(mark, nil, &marks); err != nil {
			return err
		}
		if err := s.put(letter, nil, &sub.DeadLetters); err != nil {
			return err
		}
	}
	for _, p := range m.Parked {
		place := Place{RunID: p.RunId, RunSeq: p.RunSeq}
		row, err := table.Encode(&recordv1.ParkedLetter{
			EventId: p.EventId, EventType: p.EventType, Attempts: p.Attempts, Error: p.Error, ParkedAt: s.tx.Stamp(),
		})
		if err != nil {
			return err
		}
		if err := s.put(letterKey(sub.Number, redrivenRow, place), nil, &marks); err != nil {
			return err
		}
		if err := s.put(letterKey(sub.Number, letterRow, place), row, &sub.DeadLetters); err != nil {
			return err
		}
	}
	return nil
}

// has tells whether there is a row.
func (s *staged) has(key []byte) (bool, error) {
	if row, ok := s.rows[string(key)]; ok {
		return row != nil, nil
	}
	row, err := s.tx.Get(key)
	return row != nil, err
}

// put stages a row; nil deletes one that is there. count is of the rows of its kind.
func (s *staged) put(key, row []byte, count *uint64) error {
	had, err := s.has(key)
	switch {
	case err != nil || !had && row == nil:
		return err
	case !had:
		*count++
	case row == nil:
		*count--
	}
	if _, ok := s.rows[string(key)]; !ok {
		s.keys = append(s.keys, string(key))
	}
	s.rows[string(key)] = row
	return nil
}

func (s *staged) write() {
	for _, key := range s.keys {
		if row := s.rows[key]; row != nil {
			s.tx.Set([]byte(key), row)
		} else {
			s.tx.Delete([]byte(key))
		}
	}
}
