package raft

import "time"

// LogStalled tells whether the alert LOG_WRITE_STALLED stands.
func (n *Node) LogStalled() bool { return n.logs.Stalled() > stallLimit }

const (
	// AlertLogStalled is raised when a write to the log takes longer than stallLimit: the disk
	// hangs, and with it every append.
	AlertLogStalled = "LOG_WRITE_STALLED"
	stallLimit      = time.Second
	stallCheck      = 250 * time.Millisecond
)

// watchLog raises an alert while a write to the log hangs: no error comes back from such a disk.
func (n *Node) watchLog() {
	tick := time.NewTicker(stallCheck)
	defer tick.Stop()
	raised := false
	for {
		select {
		case <-n.stop:
			return
		case <-tick.C:
		}
		raised = n.checkStall(raised, n.logs.Stalled())
	}
}

// checkStall tells whether the alert stands, and logs when it begins and when it ends.
func (n *Node) checkStall(raised bool, stall time.Duration) bool {
	n.metrics.logStall.Set(stall.Seconds())
	high := stall > stallLimit
	switch {
	case high && !raised:
		n.metrics.stallAlerts.Inc()
		n.opts.Logger.Error("a write to the log hangs, and every append with it: look at the disk", "alert", AlertLogStalled, "for", stall)
	case raised && !high:
		n.opts.Logger.Info("writes to the log go on", "alert", AlertLogStalled)
	}
	return high
}
