// Package window keeps what one subscription owes, in memory: which events were read and are not
// settled, which of them are under way, and when one that has failed comes again. It does no I/O
// but through a Source, has no goroutines and reads no clock.
//
// Events of one run are a lane, and only the first one of a lane is handed out (BUS-3):
//
//	lane run_a   [17] 18 19        17 is under way
//	lane run_b   …                 4 has failed, and is read again for its next attempt
//	lane run_c   [9]  …            more wait: the rest is read from the store again
//	lane run_d   held              a dead letter holds the run; nothing of it is in memory
//
// The cursor of the state machine passes over lanes that owe: a settlement names them
// (storage/machine/subscription).
package window
