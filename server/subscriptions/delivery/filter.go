package delivery

import (
	"maps"
	"slices"

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

// routes find the subscribers that an event may match. Only the router uses them.
type routes map[string]*route // by tenant; "": subscriptions to all tenants

type route struct {
	any   set // of events of any type
	types map[string]set
}

type set map[*subscriber]struct{}

func (r routes) add(s *subscriber, f *filter) {
	s.routed = f
	t := r[f.tenant]
	if t == nil {
		t = &route{any: set{}, types: map[string]set{}}
		r[f.tenant] = t
	}
	if len(f.types) == 0 {
		t.any[s] = struct{}{}
	}
	for _, name := range f.types {
		if t.types[name] == nil {
			t.types[name] = set{}
		}
		t.types[name][s] = struct{}{}
	}
}

func (r routes) remove(s *subscriber) {
	f := s.routed
	t := r[f.tenant]
	delete(t.any, s)
	for _, name := range f.types {
		if delete(t.types[name], s); len(t.types[name]) == 0 {
			delete(t.types, name)
		}
	}
	if len(t.any)+len(t.types) == 0 {
		delete(r, f.tenant)
	}
}

// each calls do for every subscriber that an event of a run may match.
func (r routes) each(run *storage.Run, e *storage.Record, do func(*subscriber)) {
	for _, tenant := range [2]string{"", run.Scope.TenantID} {
		t := r[tenant]
		if t == nil {
			continue
		}
		for s := range t.any {
			do(s)
		}
		for s := range t.types[e.Type] {
			do(s)
		}
	}
}
