package subscriptions

import (
	"testing"

	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/server/subscriptions/delivery"
	"runlog/server/subscriptions/window"
	"runlog/storage"
)

// TestDeliveriesCostNoAllocation: consumers get hundreds of thousands of deliveries a second, each
// with an id that is bound to the incarnation (READ-7).
func TestDeliveriesCostNoAllocation(t *testing.T) {
	record := storage.Record{Recorded: contract.Recorded{Event: contract.Event{Type: contract.StepCompleted, RunID: "run-1", Payload: []byte("{}")}, RunSeq: 7}}
	d := &delivery.Delivery{Delivery: window.Delivery{Event: &window.Event{Run: &storage.Run{RunID: "run-1"}, Record: &record}}}
	var a answer
	if n := testing.AllocsPerRun(100, func() {
		a.bytes = a.bytes[:0]
		if err := a.add(d, storage.Incarnation{1}, runlogv1.PayloadForm_JSON); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations a delivery", n)
	}
}
