package mutants

// access are bugs about what a caller of one tenant may see and do.
func access() []Mutant {
	const tenants = "server/rpc/tenants.go"
	return []Mutant{{
		Name: "filter-dropped", Breaks: "SEC-4", What: "a list, a window and a watch of any tenant show those that the caller does not see",
		Edits: []Edit{{
			File: tenants,
			Old:  "\tcase asked != \"\" && i.Sees(asked), i != nil && i.Tenants.All:\n",
			New:  "\tcase asked == \"\" || i.Sees(asked), i != nil && i.Tenants.All:\n",
		}},
	}, {
		Name: "foreign-run-shown", Breaks: "SEC-4", What: "a read by a run's name does not ask whose the run is",
		Edits: []Edit{{
			File: "server/replica/read.go",
			Old:  "if err != nil || auth.From(ctx).Sees(v.Run.Scope.TenantID) {",
			New:  "if err != nil || auth.From(ctx) != nil {",
		}},
	}, {
		Name: "foreign-run-written", Breaks: "SEC-4", What: "an event without a tenant is appended to any run",
		Edits: []Edit{{
			File: tenants,
			Old:  "\tcase err == nil && !i.Sees(owner):\n",
			New:  "\tcase err == nil && i == nil && owner != \"\":\n",
		}},
	}, {
		Name: "passport-unsigned", Breaks: "SEC-3", What: "the identity of a forwarded call counts without the code of a member",
		Edits: []Edit{{
			File: "server/auth/passport.go",
			Old:  "if !hmac.Equal(code, text[8:passportHead]) || proto.Unmarshal",
			New:  "if hmac.Equal(code, nil) || proto.Unmarshal",
		}},
		Faults: []string{"client-slow"},
	}, {
		Name: "stream-not-checked", Breaks: "SEC-5", What: "a stream is not checked again after it was opened",
		Edits: []Edit{{
			File: "server/rpc/identify.go",
			Old:  "\ttimer.Reset(a.CheckEvery)\n\tanswered := make(",
			New:  "\tanswered := make(",
		}},
		Faults: []string{"client-slow"},
	}, {
		Name: "limit-not-replicated", Breaks: "SEC-6", What: "the limits of a tenant are in the memory of the node that has set them",
		Edits: []Edit{{
			File: "server/access/limits.go",
			Old:  "err = s.execute(ctx)(tenant.SetLimits(&tenant.Limits{",
			New:  "err = tenant.Keep(s.opts.Node.Store(), (&tenant.Limits{",
		}, {
			File: "storage/machine/tenant/read.go",
			Old:  "\tstandard, err = read(v, Default)\n",
			New:  "\tif l, ok := kept.Load(s); ok && l.(*Limits).Tenant == tenant {\n\t\town = l.(*Limits)\n\t}\n\tstandard, err = read(v, Default)\n",
		}, {
			File: "storage/machine/tenant/read.go",
			Old:  "func read(r storage.TableReader",
			New: "var kept sync.Map\n\n// Keep is the bug.\nfunc Keep(s *storage.Store, l *Limits) error {\n\tkept.Store(s, l)\n\treturn nil\n}\n\n" +
				"func read(r storage.TableReader",
		}, {
			File: "storage/machine/tenant/read.go",
			Old:  "\t\"fmt\"\n",
			New:  "\t\"fmt\"\n\t\"sync\"\n",
		}},
		Faults: []string{"transfer"},
	}}
}
