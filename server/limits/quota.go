package limits

import (
	"fmt"
	"time"

	"runlog/proto/contract"
	"runlog/storage/machine/tenant"
)

// The limits that are no rates, in metrics and in errors.
const (
	limitStreams = "streams"
	limitStored  = "stored_bytes"
	limitRuns    = "running_runs"
)

// quota is what a tenant has of something that costs too much to be measured at each append: what
// was measured last, and what was admitted since. The latter may be too much, because an append may
// fail or store nothing. So it is measured again before anything is refused.
type quota struct {
	used     uint64
	measured time.Time // zero: never
}

// full reports whether nothing is left under a limit.
func (q *quota) full(now time.Time, limit uint64, measure func() (uint64, error)) bool {
	if age := now.Sub(q.measured); q.measured.IsZero() || q.used >= limit && age >= refresh {
		used, err := measure()
		if err != nil { // The projection is being rebuilt. A tenant's appends do not wait for that.
			return false
		}
		q.used, q.measured = used, now
	}
	return q.used >= limit
}

// admitQuotasLocked refuses an append of a tenant that has stored its bytes, and one that makes a
// run beyond the runs of the tenant that may be open. It reports whether the append is known to
// make a run.
func (t *Tenant) admitQuotasLocked(now time.Time, a *tenant.Amounts, makesRun func() bool) (newRun bool, err error) {
	measures := t.l.usage.Load()
	if measures == nil || t.Name == "" || a.StoredBytes == 0 && a.RunningRuns == 0 {
		return false, nil
	}
	if limit := a.StoredBytes; limit > 0 && t.mu.stored.full(now, limit, func() (uint64, error) { return (*measures).StoredBytes(t.Name) }) {
		return false, t.overQuota(limitStored, fmt.Sprintf("has stored its %d bytes:", limit))
	}
	if limit := a.RunningRuns; limit > 0 && limit <= MaxRunningRuns && makesRun() {
		if t.mu.runs.full(now, limit, func() (uint64, error) {
			n, err := (*measures).OpenRuns(t.Name, int(limit))
			return uint64(n), err
		}) {
			return false, t.overQuota(limitRuns, fmt.Sprintf("has its %d runs that are not over: end one, or", limit))
		}
		newRun = true
	}
	return newRun, nil
}

func (t *Tenant) overQuota(limit, why string) error {
	t.l.refused.WithLabelValues(limit).Inc()
	return &contract.Error{Reason: contract.ReasonQuotaExceeded, RetryAfter: quotaDelay,
		Message:  fmt.Sprintf("tenant %s %s ask an admin of the cluster for a higher limit; the request was not stored", contract.Quote(t.Name), why),
		Metadata: map[string]string{"tenant_id": t.Name, "limit": limit}}
}
