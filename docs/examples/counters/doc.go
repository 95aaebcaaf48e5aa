// Package counters is the other half of the worked example of docs/extending.md: it serves
// CounterService. It is compiled and tested like everything else, and no program links it.
package counters
