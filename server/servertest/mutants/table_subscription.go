package mutants

// subscriptions are bugs about what the cluster keeps of deliveries. The own tests of the machine
// compare it with a model and draw their cases.
func subscriptions() []Mutant {
	const machine = "storage/machine/subscription"
	bug := func(name, breaks, what, file, text, replacement string) Mutant {
		return Mutant{
			Name: name, Breaks: breaks, What: what, Package: machine, Test: "TestSubscriptionsBUS",
			Edits: []Edit{{File: machine + "/" + file, Old: text, New: replacement}},
		}
	}
	return []Mutant{
		bug("cursor-falls", "BUS-6", "a late settlement takes the cursor back", "settle.go",
			"to == from || to > from && to < uint64(w.tx.Position())", "to == from || to < uint64(w.tx.Position())"),
		bug("cursor-passes-unread", "BUS-6", "the cursor passes the entry of its own command", "settle.go",
			"to < uint64(w.tx.Position())", "to <= uint64(w.tx.Position())"),
		bug("cursor-ahead", "BUS-6", "a cursor begins ahead of the log", "apply.go",
			"if now || position > here {", "if now {"),
		bug("settled-late", "BUS-6", "a settlement of an earlier version has effect", "settle.go",
			"s.Version != m.Version", "s.Version < m.Version"),
		bug("number-reused", "BUS-6", "a subscription that is made again has the number of the one that was deleted", "apply.go",
			"\tw.tx.Delete(rowKey(s.Number))\n", "\tw.tx.Delete(rowKey(s.Number))\n"+
				"\tif err := w.set(numbersKey(), &recordv1.SubscriptionNumbers{Last: s.Number - 1}); err != nil {\n\t\treturn nil, err\n\t}\n"),
		bug("owed-and-paid", "BUS-6", "a run that is owed and paid at once owes nothing", "settle.go",
			"\t\tif err := s.put(owedKey(sub.Number, o.RunId), row, &sub.OwedRuns); err != nil {",
			"\t\tfor _, runID := range m.Paid {\n\t\t\tif runID == o.RunId {\n\t\t\t\trow = nil\n\t\t\t}\n\t\t}\n"+
				"\t\tif err := s.put(owedKey(sub.Number, o.RunId), row, &sub.OwedRuns); err != nil {"),
		bug("seek-keeps-owed", "BUS-6", "runs owe events that lie before the cursor of a seek", "apply.go",
			"\ts.OwedRuns = 0\n\ts.CursorVersion++\n\tw.begin(s, m.Position, m.Now)\n", "\tw.begin(s, m.Position, m.Now)\n"),
		bug("parked-still-redriven", "BUS-5", "a dead letter that fails again is delivered on and on", "settle.go",
			"\t\tif err := s.put(letterKey(sub.Number, redrivenRow, place), nil, &marks); err != nil {\n\t\t\treturn err\n\t\t}\n", ""),
		bug("delivered-not-redriven", "BUS-5", "a dead letter goes although it was not redriven", "settle.go",
			"\t\tif !redriven {\n\t\t\tcontinue\n\t\t}\n", "\t\t_ = redriven\n"),
		bug("discarded-twice", "BUS-5", "an event that is named twice counts as two dead letters", "letters.go",
			"err != nil || row == nil { // It was named twice.", "err != nil || row == nil && !s.Paused {"),
		bug("letters-of-longer-run", "BUS-5", "dead letters are redriven of runs with a longer id too", "letters.go",
			"\t\tfrom = text(from, which.GetRunId())\n", "\t\tfrom = append(from, which.GetRunId()...)\n"),
		bug("deleted-letters-stay", "BUS-2", "the dead letters of a subscription stay when it is deleted", "apply.go",
			"\treturn nil, w.clear(letterTable, s.Number)\n", "\treturn nil, nil\n"),
	}
}
