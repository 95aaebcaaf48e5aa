package replica

import (
	"errors"
	"testing"

	"runlog/proto/contract"
	"runlog/server/budget"
	"runlog/server/limits"
)

// TestEventsReservedAPP9 proves APP-9 and D12: what waits for its answer is bounded as it lies in
// memory, not as it is compressed.
func TestEventsReservedAPP9(t *testing.T) {
	r := &Replica{opts: Options{Memory: budget.New(10 << 10)}}
	const size = 6 << 10
	tenant := &limits.Tenant{}
	reserved, err := r.reserve(budget.Append, size, tenant)
	if err != nil || !r.Busy() {
		t.Fatalf("the first append: %v", err)
	}
	_, err = r.reserve(budget.Append, size, &limits.Tenant{})
	var own *contract.Error
	if !errors.As(err, &own) || own.Reason != contract.ReasonOverloaded || own.RetryAfter == 0 {
		t.Errorf("an append beyond the limit: %v", err)
	}
	r.release(size, &reserved, tenant)
	if r.Busy() || r.opts.Memory.Used() != 0 || tenant.Reserved.Load() != 0 {
		t.Errorf("%d bytes are reserved of nothing, %d of the budget", r.reserved.Load(), r.opts.Memory.Used())
	}
	if _, err := r.reserve(budget.Append, 20<<10, &limits.Tenant{}); err != nil {
		t.Errorf("an append that is larger than the limit, alone: %v", err)
	}
}
