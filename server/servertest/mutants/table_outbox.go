package mutants

// kept are bugs about what waits on the disk of a client. The simulator's clients have no outbox;
// the tests of its packages look for these.
func kept() []Mutant {
	const (
		outbox, writer = "client/outbox", "client/writer"
		model          = "TestModel"
	)
	return []Mutant{{
		Name: "outbox-cut-too-far", Breaks: "APP-10", What: "what removes an unfinished write from the outbox takes the whole record before it too",
		Edits: []Edit{{
			File: outbox + "/scan.go",
			Old:  "\t\ts.end, s.recovery.Torn = s.good, size-s.good\n",
			New: "\t\ts.end, s.recovery.Torn = s.good, size-s.good\n" +
				"\t\tif n := len(s.index.order); n > 0 && s.recovery.Torn > 0 {\n\t\t\ts.end = s.index.order[n-1].offset\n\t\t}\n",
		}},
		Package: outbox, Test: model,
	}, {
		Name: "outbox-done-as-mark", Breaks: "APP-10", What: "a record that is done takes the earlier records from the outbox too, at the next start",
		Edits: []Edit{{
			File: outbox + "/scan.go",
			Old:  "\t\t\t_ = s.index.remove(id, pending) || s.index.remove(id, rejected)\n",
			New:  "\t\t\tfor ; id > 0; id-- {\n\t\t\t\t_ = s.index.remove(id, pending) || s.index.remove(id, rejected)\n\t\t\t}\n",
		}},
		Package: outbox, Test: model,
	}, {
		Name: "outbox-no-fsync", Breaks: "APP-10", What: "the outbox acknowledges a record that is not synced",
		Edits: []Edit{{
			File: outbox + "/writer.go",
			Old:  "if w.unsynced = true; sync {",
			New:  "if w.unsynced = true; false {",
		}},
		Package: outbox, Test: model,
	}, {
		Name: "outbox-copy-not-synced", Breaks: "APP-10", What: "a smaller file takes the place of the outbox before it is synced",
		Edits: []Edit{{
			File: outbox + "/rewrite.go",
			Old:  "\tif err == nil {\n\t\terr = f.Sync()\n\t}\n\tif err != nil {\n\t\treturn errors.Join(err, f.Close(), w.",
			New:  "\tif err != nil {\n\t\treturn errors.Join(err, f.Close(), w.",
		}},
		Package: outbox, Test: model,
	}, {
		Name: "outbox-drained-out-of-order", Breaks: "APP-10", What: "several goroutines send the records of one run",
		Edits: []Edit{{
			File: outbox + "/drain.go",
			Old:  "maphash.String(seed, r.Request.GetRunId())%",
			New:  "(maphash.String(seed, \"\")+r.ID)%",
		}},
		Package: outbox, Test: "TestDrainKeepsOrder",
	}, {
		Name: "outbox-overtaken", Breaks: "APP-10", What: "an event is sent while earlier ones of its run wait in the outbox",
		Edits: []Edit{{
			File: writer + "/writer.go",
			Old:  "if late && w.backlogOf(req.GetRunId()) != nil {",
			New:  "if late && req == nil {",
		}, {
			File: writer + "/writer.go",
			Old:  "if err := w.await(bounded, req.GetRunId()); err != nil {",
			New:  "if err := error(nil); err != nil {",
		}},
		Package: writer, Test: "TestWriterModel",
	}}
}
