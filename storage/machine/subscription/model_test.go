package subscription_test

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	"runlog/storage"
	"runlog/storage/machine/subscription"
)

// model is what the machine must keep, as plainly as it can be said.
type model struct {
	stamp    int64
	position storage.Position
	last     uint64
	subs     map[subscription.Name]*modelSub
}

type modelSub struct {
	subscription.Subscription
	owed    map[string]subscription.OwedRun
	letters map[subscription.Place]subscription.DeadLetter
}

func (s *modelSub) clone() *modelSub {
	c := *s
	c.owed, c.letters = maps.Clone(s.owed), maps.Clone(s.letters)
	return &c
}

func (m *model) clone() *model {
	c := *m
	c.subs = map[subscription.Name]*modelSub{}
	for name, s := range m.subs {
		c.subs[name] = s.clone()
	}
	return &c
}

func (s *modelSub) count() {
	s.OwedRuns, s.DeadLetters = uint64(len(s.owed)), uint64(len(s.letters))
}

// sorted returns the subscriptions by name.
func (m *model) sorted() []*modelSub {
	return slices.SortedFunc(maps.Values(m.subs), func(a, b *modelSub) int {
		return cmp.Or(cmp.Compare(a.Name.Tenant, b.Name.Tenant), cmp.Compare(a.Name.ID, b.Name.ID))
	})
}

// sorted returns the dead letters by place.
func (s *modelSub) sorted() []subscription.DeadLetter {
	return slices.SortedFunc(maps.Values(s.letters), func(a, b subscription.DeadLetter) int {
		return cmp.Or(cmp.Compare(a.RunID, b.RunID), cmp.Compare(a.RunSeq, b.RunSeq))
	})
}

// settingsFields are names of the API, by those of Settings.
var settingsFields = map[string]string{
	"ProjectID": "filter.projectId", "EnvironmentID": "filter.environmentId", "Types": "filter.types", "PlanID": "filter.planId",
	"Labels": "filter.labels", "Delivery": "delivery", "RetryInitial": "retry.initial", "RetryMax": "retry.max",
	"MaxAttempts": "retry.maxAttempts", "MaxInFlight": "maxInFlight", "OnDeadLetter": "onDeadLetter",
}

func differences(a, b subscription.Settings) (fields []string) {
	va, vb := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range va.NumField() {
		if !reflect.DeepEqual(va.Field(i).Interface(), vb.Field(i).Interface()) {
			fields = append(fields, settingsFields[va.Type().Field(i).Name])
		}
	}
	return fields
}

func (m *model) start(at subscription.Start) storage.Position {
	if at.Now {
		return m.position
	}
	return min(at.Position, m.position)
}

func (m *model) create(name subscription.Name, s subscription.Settings, at subscription.Start, paused bool) (got subscription.Created, err error) {
	if known := m.subs[name]; known != nil {
		if fields := differences(known.Settings, s); fields != nil {
			return got, &subscription.ConflictError{Name: name, Fields: fields}
		}
		return subscription.Created{Number: known.Number, Existed: true}, nil
	}
	m.last++
	m.subs[name] = &modelSub{
		Subscription: subscription.Subscription{
			Number: m.last, Name: name, Settings: s, Paused: paused, CreatedAt: m.stamp, Version: 1, Position: m.start(at), Began: m.start(at),
		},
		owed: map[string]subscription.OwedRun{}, letters: map[subscription.Place]subscription.DeadLetter{},
	}
	return subscription.Created{Number: m.last}, nil
}

func (m *model) find(name subscription.Name) (*modelSub, error) {
	if s := m.subs[name]; s != nil {
		return s, nil
	}
	return nil, &subscription.NotFoundError{Name: name}
}

func (m *model) update(from *subscription.Subscription, to subscription.Settings) error {
	s, err := m.find(from.Name)
	if err != nil {
		return err
	}
	if s.Number != from.Number || s.Version != from.Version {
		return &subscription.VersionError{Name: s.Name, Number: s.Number, Version: s.Version}
	}
	if differences(s.Settings, to) != nil {
		s.Settings = to
		s.Version++
	}
	return nil
}

func (m *model) delete(name subscription.Name) error {
	_, err := m.find(name)
	delete(m.subs, name)
	return err
}

func (m *model) pause(name subscription.Name, paused bool) error {
	s, err := m.find(name)
	if err == nil && s.Paused != paused {
		s.Paused = paused
		s.Version++
	}
	return err
}

func (m *model) seek(name subscription.Name, to subscription.Start) error {
	s, err := m.find(name)
	if err != nil {
		return err
	}
	clear(s.owed)
	s.Position, s.Began = m.start(to), m.start(to)
	s.Version++
	s.CursorVersion++
	s.count()
	return nil
}

func (m *model) settle(items []subscription.Settlement) (settled []bool) {
	for i := range items {
		settled = append(settled, m.settleItem(&items[i]))
	}
	return settled
}

func (m *model) settleItem(item *subscription.Settlement) bool {
	var s *modelSub
	for _, other := range m.subs {
		if other.Number == item.Number {
			s = other
		}
	}
	if s == nil || s.Version != item.Version || item.Position < s.Position {
		return false
	}
	if item.Position != s.Position && item.Position >= m.position {
		return false
	}
	next := s.clone()
	for _, run := range item.Paid {
		delete(next.owed, run)
	}
	for _, o := range item.Owed {
		next.owed[o.RunID] = o
	}
	for _, p := range item.Delivered {
		if next.letters[p].Redriving {
			delete(next.letters, p)
		}
	}
	for _, p := range item.Parked {
		next.letters[p.Place] = subscription.DeadLetter{ParkedEvent: p, ParkedAt: m.stamp}
	}
	if len(next.owed) > subscription.MaxOwed || len(next.letters) > subscription.MaxDeadLetters {
		return false
	}
	next.Position = item.Position
	next.Acknowledged += item.Acknowledged
	next.Version++
	next.CursorVersion++
	next.count()
	m.subs[s.Name] = next
	return true
}

// choose returns the dead letters that an operation names.
func (m *model) choose(name subscription.Name, which subscription.Which) (s *modelSub, places []subscription.Place, err error) {
	if s, err = m.find(name); err != nil {
		return nil, nil, err
	}
	for _, p := range which.Events {
		if _, ok := s.letters[p]; !ok {
			return nil, nil, &subscription.DeadLetterNotFoundError{Name: name, Place: p}
		}
	}
	for p := range s.letters {
		if which.All || which.RunID == p.RunID || slices.Contains(which.Events, p) {
			places = append(places, p)
		}
	}
	return s, places, nil
}

func (m *model) redrive(name subscription.Name, which subscription.Which) (count int, err error) {
	s, places, err := m.choose(name, which)
	for _, p := range places {
		if d := s.letters[p]; !d.Redriving {
			d.Redriving = true
			s.letters[p] = d
			count++
		}
	}
	if count > 0 {
		s.Version++
	}
	return count, err
}

func (m *model) discard(name subscription.Name, which subscription.Which) (int, error) {
	s, places, err := m.choose(name, which)
	for _, p := range places {
		delete(s.letters, p)
	}
	if len(places) > 0 {
		s.Version++
		s.count()
	}
	return len(places), err
}
