package limits

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"runlog/proto/contract"
	"runlog/storage/machine/tenant"
)

// bed is a limiter in the hands of a test: its clock and its settings.
type bed struct {
	*Limiter
	now     time.Time
	amounts map[string]tenant.Amounts
	fail    error
}

func newBed() *bed {
	b := &bed{now: time.Unix(1e9, 0), amounts: map[string]tenant.Amounts{}}
	b.Limiter = New(Options{
		Amounts:    func(name string) (tenant.Amounts, error) { return b.amounts[name], b.fail },
		Clock:      func() time.Time { return b.now },
		Registerer: prometheus.NewRegistry(),
	})
	return b
}

// old is an append to a run that exists.
func old() bool { return false }

// over wants a refusal with a delay.
func over(t rapid.TB, err error, reason contract.Reason) time.Duration {
	t.Helper()
	e, ok := errors.AsType[*contract.Error](err)
	if !ok || e.Reason != reason || e.RetryAfter <= 0 {
		t.Fatalf("got %v, want %s and a delay", err, reason)
	}
	return e.RetryAfter
}

// TestRateSEC6: over any time no more passes than the limit says, one second's worth and one
// request aside; a refused request passes after its delay, and counts nothing before.
func TestRateSEC6(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := newBed()
		limit := rapid.Uint64Range(1, 2000).Draw(t, "limit")
		byBytes := rapid.Bool().Draw(t, "by bytes")
		if b.amounts["a"] = (tenant.Amounts{EventsPerSecond: limit}); byBytes {
			b.amounts["a"] = tenant.Amounts{BytesPerSecond: limit}
		}
		a, begun, passed, largest := b.Tenant("a"), b.now, 0, 0
		send := func(n int) error {
			if byBytes {
				return a.Admit(1, int64(n), old)
			}
			return a.Admit(n, 1<<40, old)
		}
		for range rapid.IntRange(1, 50).Draw(t, "requests") {
			b.now = b.now.Add(time.Duration(rapid.IntRange(0, 500).Draw(t, "pause")) * time.Millisecond)
			n := rapid.IntRange(1, 1000).Draw(t, "size")
			if err := send(n); err != nil {
				b.now = b.now.Add(over(t, err, contract.ReasonTenantRateLimited))
				if err := send(n); err != nil {
					t.Fatalf("after the delay: %v", err)
				}
			}
			passed, largest = passed+n, max(largest, n)
			if most := float64(limit)*(1+b.now.Sub(begun).Seconds()) + float64(largest); float64(passed) > most+1 {
				t.Fatalf("%d passed in %v, at most %v may", passed, b.now.Sub(begun), most)
			}
		}
	})
}

// TestTenantsApartSEC6: one tenant's use is not another's; a change of limits counts within a
// second; without limits, and without a known tenant, everything passes.
func TestTenantsApartSEC6(t *testing.T) {
	t.Parallel()
	b := newBed()
	b.amounts["a"] = tenant.Amounts{EventsPerSecond: 1}
	b.amounts[""] = tenant.Amounts{EventsPerSecond: 1}
	for range 100 {
		for _, name := range []string{"b", ""} {
			if err := b.Tenant(name).Admit(1000, 1<<30, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := b.Tenant("a").Admit(10, 1, old); err != nil {
		t.Fatal(err)
	}
	over(t, b.Tenant("a").Admit(1, 1, old), contract.ReasonTenantRateLimited)
	b.amounts["a"] = tenant.Amounts{}
	b.now = b.now.Add(refresh)
	if err := b.Tenant("a").Admit(1000, 1, old); err != nil {
		t.Errorf("after the limit was taken away: %v", err)
	}
	b.fail, b.now = errors.New("disk"), b.now.Add(refresh)
	if err := b.Tenant("a").Admit(1, 1, old); !errors.Is(err, b.fail) {
		t.Errorf("limits that cannot be read: %v", err)
	}
}

// TestStreamsSEC6: a tenant has as many streams open as its limit says, and no more.
func TestStreamsSEC6(t *testing.T) {
	t.Parallel()
	b := newBed()
	b.amounts["a"] = tenant.Amounts{Streams: 2}
	a := b.Tenant("a")
	for range 2 {
		if err := a.Open(); err != nil {
			t.Fatal(err)
		}
	}
	over(t, a.Open(), contract.ReasonQuotaExceeded)
	a.CloseStream()
	if err := a.Open(); err != nil {
		t.Errorf("after one was closed: %v", err)
	}
}

// TestBoundedSEC6: names of tenants cannot fill the memory: those that use nothing are forgotten,
// and beyond the bound new ones share one count.
func TestBoundedSEC6(t *testing.T) {
	t.Parallel()
	b := newBed()
	for i := range maxTenants + 10 {
		if err := b.Tenant(fmt.Sprint(i)).Open(); err != nil {
			t.Fatal(err)
		}
	}
	if len(b.tenants) != maxTenants || b.Tenant("new") != b.others || b.Tenant("7") == b.others {
		t.Errorf("%d tenants are counted", len(b.tenants))
	}
	for i := range maxTenants {
		b.Tenant(fmt.Sprint(i)).CloseStream()
	}
	b.now = b.now.Add(2 * refresh)
	if b.Tenant("new") == b.others || len(b.tenants) != 1 {
		t.Errorf("%d tenants that use nothing are counted", len(b.tenants))
	}
}

// TestNoAllocation: after the first request of a tenant, counting costs no allocation.
func TestNoAllocation(t *testing.T) {
	b := newBed()
	b.amounts["a"] = tenant.Amounts{EventsPerSecond: 1 << 40, BytesPerSecond: 1 << 50}
	if n := testing.AllocsPerRun(100, func() {
		if err := b.Tenant("a").Admit(1, 100, old); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations for each request", n)
	}
}

// use is what the tenants of a test have.
type use struct {
	stored   uint64
	runs     int
	fail     error
	measured int
}

func (u *use) StoredBytes(string) (uint64, error) {
	u.measured++
	return u.stored, u.fail
}

func (u *use) OpenRuns(_ string, limit int) (int, error) {
	u.measured++
	return min(u.runs, limit), u.fail
}

// TestQuotasSEC6: a tenant stores as many bytes, and has as many runs that are not over, as its
// limits say. What was measured long ago refuses nothing, and measuring costs little.
func TestQuotasSEC6(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b, u := newBed(), &use{}
		b.Measure(u)
		byRuns := rapid.Bool().Draw(t, "by runs")
		limit := rapid.Uint64Range(1, 20).Draw(t, "limit")
		if b.amounts["a"] = (tenant.Amounts{StoredBytes: limit}); byRuns {
			b.amounts["a"] = tenant.Amounts{RunningRuns: limit}
		}
		requests := rapid.IntRange(1, 100).Draw(t, "requests")
		seconds := 0
		for range requests {
			if rapid.IntRange(0, 3).Draw(t, "pause") == 0 {
				b.now, seconds = b.now.Add(refresh), seconds+1
			}
			if ended := rapid.IntRange(0, 3).Draw(t, "ended"); byRuns && ended <= u.runs {
				u.runs -= ended
			}
			has := u.stored
			if byRuns {
				has = uint64(u.runs)
			}
			before := u.measured
			err := b.Tenant("a").Admit(1, 1, func() bool { return byRuns })
			switch fresh := u.measured > before; {
			case err == nil && has >= limit:
				t.Fatalf("%d of %d are used, and more is admitted", has, limit)
			case err == nil && rapid.Bool().Draw(t, "stored"):
				u.stored++
				u.runs++
			case err != nil && fresh && has < limit:
				t.Fatalf("%d of %d are used, and the last measurement refuses: %v", has, limit, err)
			case err != nil:
				over(t, err, contract.ReasonQuotaExceeded)
			}
			if byRuns {
				if err := b.Tenant("a").Admit(1, 1, old); err != nil {
					t.Fatalf("an append to a run that exists: %v", err)
				}
			}
		}
		if u.measured > seconds+1 {
			t.Fatalf("measured %d times in %d s", u.measured, seconds)
		}
	})
}

// TestQuotaUnmeasuredSEC6: while it cannot be measured what a tenant has, its appends pass.
func TestQuotaUnmeasuredSEC6(t *testing.T) {
	t.Parallel()
	b, u := newBed(), &use{fail: errors.New("rebuilding"), stored: 7}
	b.amounts["a"] = tenant.Amounts{StoredBytes: 7, RunningRuns: MaxRunningRuns}
	for range 2 { // Before Measure, and after.
		if err := b.Tenant("a").Admit(1, 1, old); err != nil {
			t.Fatal(err)
		}
		b.Measure(u)
	}
	u.fail = nil
	over(t, b.Tenant("a").Admit(1, 1, old), contract.ReasonQuotaExceeded)
}
