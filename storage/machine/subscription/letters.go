package subscription

import (
	"google.golang.org/protobuf/proto"

	recordv1 "runlog/proto/record/v1"
)

// letters changes the dead letters that an operation names. change tells whether it has changed
// one, which was there at first.
func (w *work) letters(
	name *recordv1.SubscriptionName, which *recordv1.WhichDeadLetters, change func(*recordv1.Subscription, Place) (bool, error),
) (reply proto.Message, refused, fatal error) {
	s, refused, fatal := w.find(name)
	if refused != nil || fatal != nil {
		return nil, refused, fatal
	}
	places, refused, fatal := w.choose(s, which)
	if refused != nil || fatal != nil {
		return nil, refused, fatal
	}
	count := uint32(0)
	for _, p := range places {
		changed, err := change(s, p)
		if err != nil {
			return nil, nil, err
		}
		if changed {
			count++
		}
	}
	if count > 0 {
		fatal = w.change(s)
	}
	return &recordv1.DeadLettersReply{Count: count}, nil, fatal
}

// choose returns the dead letters that an operation names, or why it cannot name them.
func (w *work) choose(s *recordv1.Subscription, which *recordv1.WhichDeadLetters) (list []Place, refused, fatal error) {
	for _, m := range which.GetEvents() {
		p := decodePlace(m)
		row, err := w.tx.Get(letterKey(s.Number, letterRow, p))
		if err != nil {
			return nil, nil, err
		}
		if row == nil {
			return nil, &DeadLetterNotFoundError{Name: decodeName(s.Name), Place: p}, nil
		}
		list = append(list, p)
	}
	if list != nil {
		return list, nil, nil
	}
	from := lettersOf(s.Number, letterRow)
	if !which.GetAll() {
		from = from.Text(which.GetRunId())
	}
	for row, err := range w.tx.Scan(from, from.After()) {
		if err != nil {
			return nil, nil, err
		}
		p, err := parsePlace(row.Key)
		if err != nil {
			return nil, nil, err
		}
		list = append(list, p)
	}
	return list, nil, nil
}

func (w *work) redrive(s *recordv1.Subscription, p Place) (bool, error) {
	key := letterKey(s.Number, redrivenRow, p)
	if row, err := w.tx.Get(key); err != nil || row != nil {
		return false, err
	}
	w.tx.Set(key, []byte{})
	return true, nil
}

func (w *work) discard(s *recordv1.Subscription, p Place) (bool, error) {
	key := letterKey(s.Number, letterRow, p)
	if row, err := w.tx.Get(key); err != nil || row == nil { // It was named twice.
		return false, err
	}
	w.tx.Delete(key)
	s.DeadLetters--
	mark := letterKey(s.Number, redrivenRow, p)
	row, err := w.tx.Get(mark)
	if err == nil && row != nil {
		w.tx.Delete(mark)
	}
	return true, err
}
