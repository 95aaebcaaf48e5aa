package program

import (
	"flag"
	"slices"

	"runlog/engine/route"
)

// Scope says whose runs a program is for.
type Scope struct{ Tenant, Project, Environment string }

// Register adds the flags to a set.
func (s *Scope) Register(set *flag.FlagSet) {
	set.StringVar(&s.Tenant, "tenant", "", "tenant of the runs")
	set.StringVar(&s.Project, "project", "", "project of the runs")
	set.StringVar(&s.Environment, "environment", "prod", "environment of the runs")
}

// Check adds the faults of the flags.
func (s *Scope) Check(f *Faults) {
	f.Refuse(s.Environment == "", "--environment is empty: name one, such as prod")
	f.Refuse(s.Project != "" && s.Tenant == "", "--project is %q, and --tenant is missing: name the tenant too", s.Project)
}

// Narrowing returns the environment if the wider fields of the scope are there: without them, it
// narrows nothing.
func (s *Scope) Narrowing() string {
	if s.Project == "" {
		return ""
	}
	return s.Environment
}

// Queues are the task queues of a worker.
type Queues struct {
	Others, Isolation, Classes List
}

// Register adds the flags to a set.
func (q *Queues) Register(set *flag.FlagSet) {
	set.Var(&q.Others, "queue", "another task queue to work on; repeat it")
	set.Var(&q.Isolation, "isolation", "tenant whose isolated steps are executed here; repeat it")
	set.Var(&q.Classes, "class", "class to work on: control, which also starts runs, hands signals over and sweeps, data or isolation; repeat it (default: all)")
}

// Check adds the faults of the flags.
func (q *Queues) Check(f *Faults) {
	f.Refuse(slices.Contains(q.Others, ""), "--queue is empty: name a task queue, or leave it out")
	for _, class := range q.Classes {
		f.Refuse(!slices.Contains([]string{route.Control, route.Data, route.Isolation}, class), "--class is %q: write control, data or isolation", class)
	}
	f.Refuse(slices.Contains(q.Classes, route.Isolation) && len(q.Isolation) == 0, "--class isolation needs --isolation: name the tenant")
	f.Refuse(!q.Serve(route.Isolation) && len(q.Isolation) > 0, "--isolation needs --class isolation")
	f.Refuse(slices.Contains(q.Isolation, ""), "--isolation is empty: name a tenant, or leave it out")
}

// Serve reports whether the worker has a class. Without a flag it has them all.
func (q *Queues) Serve(class string) bool {
	return len(q.Classes) == 0 || slices.Contains(q.Classes, class)
}

// Of returns the task queues in an environment, and whose isolated steps are executed.
func (q *Queues) Of(environment string) (queues []string, isolation []route.Owner) {
	queues = slices.Clone(q.Others)
	for _, class := range []string{route.Control, route.Data} {
		if q.Serve(class) {
			queues = append(queues, route.TaskQueue(route.Step{Class: class}, environment, ""))
		}
	}
	for _, tenant := range q.Isolation {
		isolation = append(isolation, route.Owner{TenantID: tenant, EnvironmentID: environment})
	}
	return queues, isolation
}
