package runlog_test

// proseExceptions counts the faults of prose that a package or a document may still have, by rule.
// The list only shrinks: go test . -run TestProse -update-prose lowers it.
var proseExceptions = map[string]map[string]int{}
