package delivery

import (
	"context"

	"runlog/storage"
)

// Consulted returns how many subscriptions the router asks whether an event may concern them, and
// whether the event is decoded as a whole.
func (d *Dispatcher) Consulted(tenant, eventType string) (n int, decoded bool) {
	run, e := &storage.Run{}, &storage.Record{}
	run.Scope.TenantID, e.Type = tenant, eventType
	t := d.current()
	_ = t.ask(context.Background(), func(r *router) {
		r.routes.each(run, e, func(*subscriber) { n++ })
	})
	return n, t.wants(run)
}
