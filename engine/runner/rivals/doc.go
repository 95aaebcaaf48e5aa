// Package rivals has two tenants of one node attack each other, and requires that no byte leaks.
//
//	acme ── tokens, runner, secrets, plans, sink ──┐
//	  │ attacks, in an order from a seed           ├── one node with access control
//	umbrella ── the same of its own ───────────────┘
//
// Each secret, payload, label, context, artifact and id of a tenant has a mark of its own: the name
// of the tenant and random letters. One checker reads all that a tenant receives: answers and
// errors, the events of its runs, what its sink was sent, its runner's log, metrics and files. A
// mark of the other tenant is a leak, unless this tenant has sent that mark itself: a refusal may
// repeat the id that it is about.
//
// At the end, the runs, leases, queues and subscriptions that were attacked are as they were.
//
// The tests need Linux: each sink has an address of its own in 127.0.0.0/8, and commands attack
// /proc. Not attacked are the files of the user that both runners have, which a command can read:
// operators give each tenant's runner a user of its own.
package rivals
