package delivery

import "runlog/storage"

// Consulted returns how many subscribers the tail asks whether they take an event, and whether it
// decodes the event at all.
func (d *Dispatcher) Consulted(tenant, eventType string) (n int, decoded bool) {
	run, e := &storage.Run{}, &storage.Record{}
	run.Scope.TenantID, e.Type = tenant, eventType
	r := d.current().routes.Load()
	_ = r.each(run, e, func(*subscriber) error { n++; return nil })
	return n, r.wants(run)
}
