// Package attempt has what all sinks share about one try to hand over an event: how it ends, and a
// Group that bounds its time and joins its goroutines (BUS-4).
package attempt
