package raft

import "time"

// LogStalled reports whether the alert LOG_WRITE_STALLED is raised.
func (n *Node) LogStalled() bool { return n.logs.Stalled() > stallLimit }

const (
	// AlertLogStalled is raised when a write to the log takes longer than stallLimit: the disk
	// hangs, and with it every append.
	AlertLogStalled = "LOG_WRITE_STALLED"
	stallLimit      = time.Second
	stallCheck      = 250 * time.Millisecond
)

// watchLog raises an alert while a write to the log hangs: a hanging disk returns no error.
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

// checkStall returns whether the alert is raised. It logs the start and the end of the alert.
func (n *Node) checkStall(raised bool, stall time.Duration) bool {
	n.metrics.logStall.Set(stall.Seconds())
	high := stall > stallLimit
	switch {
	case high && !raised:
		n.metrics.stallAlerts.Inc()
		n.opts.Logger.Error("write to the log hangs; check the disk", "alert", AlertLogStalled, "for", stall)
	case raised && !high:
		n.opts.Logger.Info("write to the log has finished", "alert", AlertLogStalled)
	}
	return high
}
