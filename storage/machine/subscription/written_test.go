package subscription_test

import (
	"reflect"
	"slices"
	"testing"

	"runlog/storage/machine/subscription"
	"runlog/storage/table"
)

// TestWrittenBUS6: an entry tells of the subscriptions that it has changed or removed, whatever of
// them it was. One that changes none tells nothing, nor does any after the watch has ended.
func TestWrittenBUS6(t *testing.T) {
	t.Parallel()
	b := open(t)
	t.Cleanup(func() { _ = b.Close() })
	var told []subscription.Written
	stop := b.Store.WatchRows(subscription.Kind, func(rows []table.Row) {
		w, err := subscription.DecodeWritten(rows)
		if err != nil {
			t.Error(err)
		}
		told = append(told, w)
	})
	first, second := names[0], names[2]
	next := func(changed []subscription.Name, removed []uint64, c ...step) {
		t.Helper()
		told = nil
		b.do(1, command(c))
		if changed == nil && removed == nil {
			if len(told) != 0 {
				t.Errorf("told of %+v", told)
			}
			return
		}
		if len(told) != 1 || len(told[0].Changed) != len(changed) || !slices.Equal(told[0].Removed, removed) {
			t.Fatalf("told %+v, want %v and %v", told, changed, removed)
		}
		for i, name := range changed {
			if got := told[0].Changed[i]; !reflect.DeepEqual(*got, b.of(name).Subscription) {
				t.Errorf("told of %+v, want %+v", got, b.of(name).Subscription)
			}
		}
	}
	one := []subscription.Name{first}
	all := subscription.Which{All: true}
	create := b.create(first, kinds[0], subscription.Start{}, false)
	next(one, nil, create)
	next(nil, nil, create)
	next([]subscription.Name{second}, nil, b.create(second, kinds[0], subscription.Start{}, false))
	next(one, nil, b.pause(first, true))
	next(nil, nil, b.pause(first, true))
	next(one, nil, b.update(b.of(first).Subscription, kinds[1]))
	next(nil, nil, b.update(b.of(first).Subscription, kinds[1]))
	item := b.item(first)
	item.Parked = []subscription.ParkedEvent{{Place: subscription.Place{RunID: "r", RunSeq: 1}}}
	next(one, nil, b.settle(item))
	next(nil, nil, b.settle(item))
	next(nil, nil, b.letters(false, second, all))
	next(one, nil, b.letters(false, first, all))
	next(nil, nil, b.letters(false, first, all))
	next(one, nil, b.letters(true, first, all))
	next(nil, nil, b.letters(true, first, all))
	next([]subscription.Name{first, second}, nil, b.seek(second, subscription.Start{}), b.seek(first, subscription.Start{Now: true}))
	next(one, []uint64{1}, b.delete(first), create)
	next([]subscription.Name{}, []uint64{2, 3}, b.delete(first), b.delete(second))
	stop()
	next(nil, nil, create)
}
