package subscription

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage"
	"runlog/storage/table"
)

// Apply implements storage.Machine.
func (Machine) Apply(tx *storage.Tx, op []byte) (reply []byte, refused, fatal error) {
	var o recordv1.SubscriptionOperation
	if err := proto.Unmarshal(op, &o); err != nil {
		return nil, nil, fmt.Errorf("subscription: undecodable operation: %w", err)
	}
	w := &work{tx: tx}
	answer, refused, fatal := w.apply(&o)
	if refused != nil || fatal != nil || answer == nil {
		return nil, refused, fatal
	}
	reply, fatal = table.Encode(answer)
	return reply, nil, fatal
}

func (w *work) apply(o *recordv1.SubscriptionOperation) (reply proto.Message, refused, fatal error) {
	switch kind := o.Kind.(type) {
	case *recordv1.SubscriptionOperation_Create:
		return w.create(kind.Create)
	case *recordv1.SubscriptionOperation_Update:
		refused, fatal = w.update(kind.Update)
	case *recordv1.SubscriptionOperation_Delete:
		refused, fatal = w.delete(kind.Delete)
	case *recordv1.SubscriptionOperation_Pause:
		refused, fatal = w.pause(kind.Pause)
	case *recordv1.SubscriptionOperation_Seek:
		refused, fatal = w.seek(kind.Seek)
	case *recordv1.SubscriptionOperation_Settle:
		reply, fatal = w.settle(kind.Settle)
	case *recordv1.SubscriptionOperation_Redrive:
		return w.letters(kind.Redrive.Name, kind.Redrive.Which, w.redrive)
	case *recordv1.SubscriptionOperation_Discard:
		return w.letters(kind.Discard.Name, kind.Discard.Which, w.discard)
	default:
		fatal = storage.ErrUnknownOperation
	}
	return reply, refused, fatal
}

// work is one operation being applied.
type work struct{ tx *storage.Tx }

// find returns a subscription by its name, or why there is none.
func (w *work) find(name *recordv1.SubscriptionName) (m *recordv1.Subscription, refused, fatal error) {
	m, err := byName(w.tx, decodeName(name))
	if err == nil && m == nil {
		refused = &NotFoundError{Name: decodeName(name)}
	}
	return m, refused, err
}

// change writes the row of a subscription that has changed.
func (w *work) change(m *recordv1.Subscription) error {
	m.Version++
	return table.Set(w.tx, rowKey(m.Number), m)
}

func (w *work) create(m *recordv1.CreateSubscription) (reply proto.Message, refused, fatal error) {
	name := decodeName(m.Name)
	known, err := byName(w.tx, name)
	if err != nil {
		return nil, nil, err
	}
	if known != nil {
		if fields := differences(known.Settings, m.Settings); fields != nil {
			return nil, &ConflictError{Name: name, Fields: fields}, nil
		}
		return &recordv1.CreateReply{Number: known.Number, Existed: true}, nil, nil
	}
	n, err := countOf(w.tx, name.Tenant)
	if err != nil {
		return nil, nil, err
	}
	if n >= MaxSubscriptions {
		return nil, &TooManyError{Tenant: name.Tenant}, nil
	}
	numbers, err := table.Get[recordv1.SubscriptionNumbers](w.tx, numbersKey())
	if err != nil {
		return nil, nil, err
	}
	if numbers == nil {
		numbers = &recordv1.SubscriptionNumbers{}
	}
	numbers.Last++
	if err := table.Set(w.tx, numbersKey(), numbers); err != nil {
		return nil, nil, err
	}
	w.count(name.Tenant, n+1)
	table.SetNumber(w.tx, nameKey(name), numbers.Last)
	row := &recordv1.Subscription{
		Number: numbers.Last, Name: m.Name, Settings: m.Settings, Paused: m.Paused, CreatedAt: w.tx.Stamp(),
	}
	w.begin(row, m.Position, m.Now)
	return &recordv1.CreateReply{Number: row.Number}, nil, w.change(row)
}

// count keeps how many subscriptions a tenant has.
func (w *work) count(tenant string, n uint64) {
	if n == 0 {
		w.tx.Delete(countKey(tenant))
		return
	}
	table.SetNumber(w.tx, countKey(tenant), n)
}

// begin puts the cursor somewhere, but not ahead of the log.
func (w *work) begin(m *recordv1.Subscription, position uint64, now bool) {
	here := uint64(w.tx.Position())
	if now || position > here {
		position = here
	}
	m.Position, m.Began = position, position
}

func (w *work) update(m *recordv1.UpdateSubscription) (refused, fatal error) {
	s, refused, fatal := w.find(m.Name)
	if refused != nil || fatal != nil {
		return refused, fatal
	}
	if s.Number != m.Number || s.Version != m.Version {
		return &VersionError{Name: decodeName(s.Name), Number: s.Number, Version: s.Version}, nil
	}
	if differences(s.Settings, m.Settings) == nil {
		return nil, nil
	}
	s.Settings = m.Settings
	return nil, w.change(s)
}

func (w *work) pause(m *recordv1.PauseSubscription) (refused, fatal error) {
	s, refused, fatal := w.find(m.Name)
	if refused != nil || fatal != nil || s.Paused == m.Paused {
		return refused, fatal
	}
	s.Paused = m.Paused
	return nil, w.change(s)
}

func (w *work) seek(m *recordv1.SeekSubscription) (refused, fatal error) {
	s, refused, fatal := w.find(m.Name)
	if refused != nil || fatal != nil {
		return refused, fatal
	}
	if err := w.clear(owedTable, s.Number); err != nil {
		return nil, err
	}
	s.OwedRuns = 0
	s.CursorVersion++
	w.begin(s, m.Position, m.Now)
	return nil, w.change(s)
}

func (w *work) delete(m *recordv1.DeleteSubscription) (refused, fatal error) {
	s, refused, fatal := w.find(m.Name)
	if refused != nil || fatal != nil {
		return refused, fatal
	}
	name := decodeName(s.Name)
	n, err := countOf(w.tx, name.Tenant)
	if err != nil {
		return nil, err
	}
	w.count(name.Tenant, n-1)
	w.tx.Delete(nameKey(name))
	w.tx.Delete(rowKey(s.Number))
	if err := w.clear(owedTable, s.Number); err != nil {
		return nil, err
	}
	return nil, w.clear(letterTable, s.Number)
}

// clear deletes the rows of a subscription in a table.
func (w *work) clear(prefix string, n uint64) error {
	from := rowsOf(prefix, n)
	for row, err := range w.tx.Scan(from, from.After()) {
		if err != nil {
			return err
		}
		w.tx.Delete(row.Key)
	}
	return nil
}
