package delivery

import (
	"maps"
	"slices"
	"sync/atomic"

	"runlog/storage"
	"runlog/storage/machine/subscription"
)

// filter selects the events of a subscription.
type filter struct {
	tenant, project, environment, plan string
	types                              []string // empty: any
	labels                             map[string]string
}

func filterOf(s *subscription.Subscription) *filter {
	return &filter{
		tenant: s.Name.Tenant, project: s.Settings.ProjectID, environment: s.Settings.EnvironmentID, plan: s.Settings.PlanID,
		types: s.Settings.Types, labels: s.Settings.Labels,
	}
}

// same reports whether filters select the same.
func (f *filter) same(as *filter) bool {
	return f.tenant == as.tenant && f.project == as.project && f.environment == as.environment && f.plan == as.plan &&
		slices.Equal(f.types, as.types) && maps.Equal(f.labels, as.labels)
}

// wants reports whether events of a run may match, by what never changes of it.
func (f *filter) wants(r *storage.Run) bool {
	return (f.tenant == "" || f.tenant == r.Scope.TenantID) &&
		(f.project == "" || f.project == r.Scope.ProjectID) &&
		(f.environment == "" || f.environment == r.Scope.EnvironmentID)
}

// matches reports whether an event of a run that is wanted matches.
func (f *filter) matches(e *storage.Record, now *labels) (bool, error) {
	if len(f.types) > 0 && !slices.Contains(f.types, e.Type) || f.plan != "" && f.plan != e.PlanID {
		return false, nil
	}
	return f.labelled(now)
}

// labelled reports whether a run has the labels now.
func (f *filter) labelled(now *labels) (bool, error) {
	if len(f.labels) == 0 {
		return true, nil
	}
	has, err := now.get()
	if err != nil {
		return false, err
	}
	for key, value := range f.labels {
		if is, ok := has[key]; !ok || is != value {
			return false, nil
		}
	}
	return true, nil
}

// labels are those of a run. They are read once, for all filters that ask for them.
type labels struct {
	store *storage.Store
	runID string
	read  bool
	has   map[string]string
}

func (l *labels) get() (map[string]string, error) {
	if l.read {
		return l.has, nil
	}
	run, err := l.store.Run(l.runID)
	if err != nil {
		return nil, err
	}
	if l.read = true; run.Metadata != nil {
		l.has = run.Metadata.Labels
	}
	return l.has, nil
}

// routes find the subscribers of an event. They never change: others take their place.
type routes struct {
	tenants  map[string]*route // "": subscriptions to all tenants
	attached atomic.Int64      // subscribers that are
}

type route struct {
	attached atomic.Int64  // subscribers that are
	any      []*subscriber // of events of any type
	types    map[string][]*subscriber
}

func newRoutes(all map[uint64]*subscriber) *routes {
	r := &routes{tenants: map[string]*route{}}
	for _, n := range slices.Sorted(maps.Keys(all)) {
		s := all[n]
		f := s.filter.Load()
		t := r.tenants[f.tenant]
		if t == nil {
			t = &route{types: map[string][]*subscriber{}}
			r.tenants[f.tenant] = t
		}
		if len(f.types) == 0 {
			t.any = append(t.any, s)
		}
		for _, name := range f.types {
			t.types[name] = append(t.types[name], s)
		}
		if s.attached.Load() {
			r.count(s, true)
		}
	}
	return r
}

// count counts a subscriber that is attached, or no longer is. A route to it may be gone.
func (r *routes) count(s *subscriber, is bool) {
	t := r.tenants[s.filter.Load().tenant]
	if t == nil {
		return
	}
	n := int64(1)
	if !is {
		n = -1
	}
	t.attached.Add(n)
	r.attached.Add(n)
}

// wants reports whether a subscriber is attached that events of a run may match.
func (r *routes) wants(run *storage.Run) bool {
	for _, tenant := range [2]string{"", run.Scope.TenantID} {
		if t := r.tenants[tenant]; t != nil && t.attached.Load() > 0 {
			return true
		}
	}
	return false
}

// each calls do for every subscriber that an event may match.
func (r *routes) each(run *storage.Run, e *storage.Record, do func(*subscriber) error) error {
	for _, tenant := range [2]string{"", run.Scope.TenantID} {
		t := r.tenants[tenant]
		if t == nil {
			continue
		}
		for _, list := range [2][]*subscriber{t.any, t.types[e.Type]} {
			for _, s := range list {
				if err := do(s); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
