// Package stamps makes and judges stamps, the times that leaders give to their proposals: one wrong
// clock must not move the time of a cluster (APP-5).
//
// persistedAt never goes back, so a stamp from far ahead stays: every later event gets nearly the
// same time until real time has reached it. Apply reads no clock and cannot refuse such a stamp.
// So it is kept out of the log, at two places:
//
//	leader    ── Admit ──► proposes nothing whose stamp a majority of the voters would refuse
//	follower  ── Accept ─► takes no uncommitted entry whose stamp is too far ahead of its clock
//
//	leader    ── Next ───► stamps with elapsed time, slewed towards its clock
//	follower  ── Follow ─► sets its clock of stamps by those of the leader, to be used if it leads
//
// The leader asks the voters for their clocks about once a second (Measure). A leader that is ahead
// of a majority passes the leadership on. The follower's check protects against a leader that does
// not know yet, or never checks.
//
// # Which clock a follower compares with
//
// Its own, as a rule. A node whose clock is far behind the cluster's time, such as one that has
// lost its clock in a reboot, cannot judge with it, and would refuse every entry. It compares with
// the last stamp that it has applied, plus the time since. A follower with a right clock never does
// so, because it accepts no stamp from far ahead. So stamps cannot move ahead step by step either.
//
// A committed entry is never refused: a majority has accepted its stamp.
package stamps
