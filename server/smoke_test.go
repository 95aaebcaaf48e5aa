package server

import "testing"

func TestSmoke(t *testing.T) {
	n := startNode(t)
	n.append("r", newEvent("RunStarted"))
	n.restart()
	t.Log(n.snapshot("r"))
}
