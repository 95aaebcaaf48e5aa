package replica

import (
	"errors"
	"testing"

	"runlog/proto/contract"
	"runlog/storage"
)

// TestEventsHeldAPP9 proves APP-9 and D12: what waits for its answer is bounded as it lies in
// memory, not as it is compressed.
func TestEventsHeldAPP9(t *testing.T) {
	r := &Replica{opts: Options{HeldBytes: 10 << 10}}
	a := &storage.Append{Events: []contract.Event{{Payload: make([]byte, 6<<10)}}}
	held, err := r.hold(a)
	if err != nil || !r.Busy() {
		t.Fatalf("the first append: %v", err)
	}
	_, err = r.hold(a)
	var own *contract.Error
	if !errors.As(err, &own) || own.Reason != contract.ReasonOverloaded || own.RetryAfter == 0 {
		t.Errorf("an append beyond the limit: %v", err)
	}
	r.held.Add(-held)
	if r.Busy() {
		t.Errorf("%d bytes are held of nothing", r.held.Load())
	}
	large := &storage.Append{Events: []contract.Event{{Payload: make([]byte, 20<<10)}}}
	if _, err := r.hold(large); err != nil {
		t.Errorf("an append that is larger than the limit, alone: %v", err)
	}
}
