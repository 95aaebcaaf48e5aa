package subscription

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	recordv1 "runlog/proto/record/v1"
	"runlog/storage"
)

// Start is where a cursor begins: behind the log entry at Position, or behind that of the command.
// A position ahead of the log counts as Now.
type Start struct {
	Position storage.Position
	Now      bool
}

// Create is the operation that makes a subscription. If there is one with the same settings, it
// changes nothing and says so; start and paused are not compared. Its reply is for DecodeCreate. It
// is refused with a *ConflictError or a *TooManyError.
func Create(name Name, s *Settings, start Start, paused bool) (storage.Operation, error) {
	settings, err := encodeSettings(s)
	if err != nil {
		return storage.Operation{}, err
	}
	return named(name, &recordv1.SubscriptionOperation{Kind: &recordv1.SubscriptionOperation_Create{Create: &recordv1.CreateSubscription{
		Name: encodeName(name), Settings: settings, Position: uint64(start.Position), Now: start.Now, Paused: paused,
	}}})
}

// Created is the reply of Create.
type Created struct {
	Number  uint64
	Existed bool
}

// DecodeCreate decodes the reply of Create.
func DecodeCreate(reply []byte) (Created, error) {
	var m recordv1.CreateReply
	err := storage.DecodeReply(reply, &m)
	return Created{Number: m.Number, Existed: m.Existed}, err
}

// Update is the operation that replaces the settings of a subscription, which were made from those
// of from. It is refused with a *NotFoundError, or with a *VersionError if the subscription has
// changed since.
func Update(from *Subscription, s *Settings) (storage.Operation, error) {
	settings, err := encodeSettings(s)
	if err != nil {
		return storage.Operation{}, err
	}
	return named(from.Name, &recordv1.SubscriptionOperation{Kind: &recordv1.SubscriptionOperation_Update{Update: &recordv1.UpdateSubscription{
		Name: encodeName(from.Name), Settings: settings, Number: from.Number, Version: from.Version,
	}}})
}

// Delete is the operation that removes a subscription with all that belongs to it. It is refused
// with a *NotFoundError.
func Delete(name Name) (storage.Operation, error) {
	return named(name, &recordv1.SubscriptionOperation{Kind: &recordv1.SubscriptionOperation_Delete{
		Delete: &recordv1.DeleteSubscription{Name: encodeName(name)},
	}})
}

// Pause is the operation that pauses a subscription or ends its pause. It is refused with a
// *NotFoundError.
func Pause(name Name, paused bool) (storage.Operation, error) {
	return named(name, &recordv1.SubscriptionOperation{Kind: &recordv1.SubscriptionOperation_Pause{
		Pause: &recordv1.PauseSubscription{Name: encodeName(name), Paused: paused},
	}})
}

// Seek is the operation that moves the cursor, after which no run owes events. Dead letters stay.
// It is refused with a *NotFoundError.
func Seek(name Name, to Start) (storage.Operation, error) {
	return named(name, &recordv1.SubscriptionOperation{Kind: &recordv1.SubscriptionOperation_Seek{
		Seek: &recordv1.SeekSubscription{Name: encodeName(name), Position: uint64(to.Position), Now: to.Now},
	}})
}

// Place is an event within a subscription.
type Place struct {
	RunID  string
	RunSeq uint64 // from 1
}

func (p Place) check() error {
	if p.RunID == "" || p.RunSeq == 0 {
		return fmt.Errorf("subscription: encode operation: run %q, runSeq %d", p.RunID, p.RunSeq)
	}
	return noZero("runId", p.RunID)
}

// OwedRun is a run with events up to the cursor that are not settled: those from NextSeq on.
type OwedRun struct {
	RunID    string
	NextSeq  uint64
	Attempts uint32 // failed ones, of the event NextSeq
}

// ParkedEvent is an event with all its attempts failed.
type ParkedEvent struct {
	Place
	EventID, EventType string
	Attempts           uint32
	Error              string
}

// Settlement says what was achieved for a subscription since another one, or since it was read.
type Settlement struct {
	// Those of the row. An item that has effect raises Version by 1.
	Number, Version uint64
	// Position of the cursor from now on.
	Position storage.Position
	// Owed replaces what these runs owed. The others owe what they did.
	Owed []OwedRun
	// Paid are runs that owe nothing more, unless they are in Owed.
	Paid []string
	// Parked are dead letters from now on, and no longer redriven. The operation has at most
	// MaxErrorBytes of each Error.
	Parked []ParkedEvent
	// Delivered are dead letters that are acknowledged and go, if they are redriven. One that is in
	// Parked stays.
	Delivered []Place
	// Acknowledged counts the events that were acknowledged.
	Acknowledged uint64
}

// Settle is the operation of settlements, at most MaxItems. It is never refused, but an item may
// have no effect, as the package comment says. Its reply is for DecodeSettle.
func Settle(items []Settlement) (storage.Operation, error) {
	if len(items) > MaxItems {
		return storage.Operation{}, fmt.Errorf("subscription: encode settle: %d items are more than %d", len(items), MaxItems)
	}
	m := &recordv1.SettleSubscriptions{Items: make([]*recordv1.Settlement, len(items))}
	for i := range items {
		item, err := encodeSettlement(&items[i])
		if err != nil {
			return storage.Operation{}, fmt.Errorf("item %d: %w", i, err)
		}
		m.Items[i] = item
	}
	return operation(&recordv1.SubscriptionOperation{Kind: &recordv1.SubscriptionOperation_Settle{Settle: m}})
}

func encodeSettlement(s *Settlement) (*recordv1.Settlement, error) {
	m := &recordv1.Settlement{
		Number: s.Number, Version: s.Version, Position: uint64(s.Position), Paid: s.Paid, Acknowledged: s.Acknowledged,
	}
	var errs []error
	for _, o := range s.Owed {
		errs = append(errs, Place{o.RunID, o.NextSeq}.check())
		m.Owed = append(m.Owed, &recordv1.OwedRun{RunId: o.RunID, NextSeq: o.NextSeq, Attempts: o.Attempts})
	}
	for i := range s.Parked {
		p := &s.Parked[i]
		errs = append(errs, p.check())
		m.Parked = append(m.Parked, &recordv1.ParkedEvent{
			RunId: p.RunID, RunSeq: p.RunSeq, EventId: p.EventID, EventType: p.EventType, Attempts: p.Attempts, Error: cut(p.Error, MaxErrorBytes),
		})
	}
	delivered, err := encodePlaces(s.Delivered)
	m.Delivered = delivered
	return m, errors.Join(append(errs, err)...)
}

// cut returns at most the first n bytes of a text, without bytes that are not UTF-8.
func cut(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// DecodeSettle decodes the reply of Settle: whether each item had effect.
func DecodeSettle(reply []byte) ([]bool, error) {
	var m recordv1.SettleReply
	err := storage.DecodeReply(reply, &m)
	return m.Settled, err
}

// Which names dead letters in one of three ways.
type Which struct {
	All    bool
	Events []Place // at most MaxPlaces; all of them must be there
	RunID  string
}

// Redrive is the operation after which dead letters are due again. Its reply, for
// DecodeDeadLetters, does not count those that were redriven before. It is refused with a
// *NotFoundError or a *DeadLetterNotFoundError.
func Redrive(name Name, which Which) (storage.Operation, error) {
	w, err := encodeWhich(&which)
	if err != nil {
		return storage.Operation{}, err
	}
	return named(name, &recordv1.SubscriptionOperation{Kind: &recordv1.SubscriptionOperation_Redrive{
		Redrive: &recordv1.RedriveDeadLetters{Name: encodeName(name), Which: w},
	}})
}

// Discard is the operation that removes dead letters, also redriven ones. Its reply is for
// DecodeDeadLetters. It is refused as Redrive is.
func Discard(name Name, which Which) (storage.Operation, error) {
	w, err := encodeWhich(&which)
	if err != nil {
		return storage.Operation{}, err
	}
	return named(name, &recordv1.SubscriptionOperation{Kind: &recordv1.SubscriptionOperation_Discard{
		Discard: &recordv1.DiscardDeadLetters{Name: encodeName(name), Which: w},
	}})
}

func encodeWhich(w *Which) (*recordv1.WhichDeadLetters, error) {
	ways := 0
	for _, named := range []bool{w.All, len(w.Events) > 0, w.RunID != ""} {
		if named {
			ways++
		}
	}
	if ways != 1 || len(w.Events) > MaxPlaces {
		return nil, fmt.Errorf("subscription: encode operation: dead letters named in %d ways, %d one by one", ways, len(w.Events))
	}
	events, err := encodePlaces(w.Events)
	return &recordv1.WhichDeadLetters{All: w.All, Events: events, RunId: w.RunID}, errors.Join(err, noZero("runId", w.RunID))
}

func encodePlaces(places []Place) (list []*recordv1.EventPlace, err error) {
	for _, p := range places {
		err = errors.Join(err, p.check())
		list = append(list, &recordv1.EventPlace{RunId: p.RunID, RunSeq: p.RunSeq})
	}
	return list, err
}

// DecodeDeadLetters decodes the reply of Redrive and Discard: how many dead letters they changed.
func DecodeDeadLetters(reply []byte) (int, error) {
	var m recordv1.DeadLettersReply
	err := storage.DecodeReply(reply, &m)
	return int(m.Count), err
}

func named(name Name, m *recordv1.SubscriptionOperation) (storage.Operation, error) {
	if err := name.check(); err != nil {
		return storage.Operation{}, err
	}
	return operation(m)
}

func operation(m *recordv1.SubscriptionOperation) (storage.Operation, error) {
	return storage.EncodeOperation(Kind, m)
}
