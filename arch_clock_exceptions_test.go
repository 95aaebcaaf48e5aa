package runlog_test

// realTime lists the functions that depend on the real clock, each with its reason: by folder, type
// and name.
var realTime = map[string]string{}
