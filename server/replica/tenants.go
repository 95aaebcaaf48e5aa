package replica

import (
	"errors"
	"sync"

	"runlog/proto/contract"
	"runlog/server/limits"
	"runlog/storage"
	"runlog/storage/machine/tenant"
)

// charge counts an append against the limits of its tenant (SEC-6). What the operator imports is
// counted and never refused.
func (r *Replica) charge(a *storage.Append) (*limits.Tenant, error) {
	t := r.limits.Tenant(r.Tenant(a))
	if len(a.Imported) > 0 {
		return t, nil
	}
	return t, t.Admit(len(a.Events), limits.Bytes(a), func() bool { return r.makesRun(a) })
}

// makesRun reports whether an append makes a run, as far as this node knows.
func (r *Replica) makesRun(a *storage.Append) bool {
	var missing *storage.RunNotFoundError
	_, err := r.TenantOf(a.RunID)
	return errors.As(err, &missing)
}

// amounts reads what a tenant may use.
func (r *Replica) amounts(name string) (tenant.Amounts, error) {
	if name == tenant.Cluster {
		return tenant.Amounts{}, nil
	}
	own, standard, err := tenant.Read(r.store, name)
	if err != nil {
		return tenant.Amounts{}, err
	}
	return tenant.Effective(own, standard), nil
}

// Tenant returns the tenant of an append: the one that it names, else that of its run; empty: the
// run does not exist here. If it names another tenant than that of its run, it will be refused.
func (r *Replica) Tenant(a *storage.Append) string {
	if a.Create != nil {
		return a.Create.Scope.TenantID
	}
	for i := range a.Events {
		if e := &a.Events[i]; e.Absent&contract.AbsentTenant == 0 {
			return e.TenantID
		}
	}
	name, _ := r.TenantOf(a.RunID)
	return name
}

// TenantOf returns the tenant of a run, or *storage.RunNotFoundError if this node has not applied
// one. It remembers the answer: to read it from the store at each append would be a fifth of the
// cost of the append.
func (r *Replica) TenantOf(runID string) (string, error) {
	if name, ok := r.tenants.get(runID); ok {
		return name, nil
	}
	run, err := r.store.Run(runID)
	if err != nil {
		return "", err
	}
	r.tenants.put(runID, run.Scope.TenantID)
	return run.Scope.TenantID, nil
}

// knownRuns is how many runs a generation of runTenants has.
const knownRuns = 16 << 10

// runTenants remembers the tenants of runs that were appended to, which never change. The older
// generation is forgotten when the younger one is full.
type runTenants struct {
	mu             sync.RWMutex
	younger, older map[string]string
}

func (k *runTenants) get(runID string) (string, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if name, ok := k.younger[runID]; ok {
		return name, true
	}
	name, ok := k.older[runID]
	return name, ok
}

func (k *runTenants) put(runID, name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.younger == nil || len(k.younger) >= knownRuns {
		k.older, k.younger = k.younger, map[string]string{}
	}
	k.younger[runID] = name
}
