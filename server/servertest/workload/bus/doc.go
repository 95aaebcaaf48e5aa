// Package bus has clients of the event bus, which package workload starts in addition to its
// others.
//
//	subscription   events go to                      an operator
//	bus-hold       consumers; dead letters hold runs redrives, discards, pauses, seeks, deletes
//	bus-pull       consumers                         redrives, discards, pauses, seeks
//	bus-sink       a sink that fails now and then    redrives, discards, pauses, seeks
//
// Consumers acknowledge on their stream or with a call of its own, refuse, forget, take their time
// and leave. What all of them do and see goes into the history as acts, which history.Check
// compares with the log. In the end Drain has everything delivered that is due.
package bus
