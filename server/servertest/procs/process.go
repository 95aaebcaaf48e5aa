//go:build unix

package procs

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"

	"runlog/testbed/await"
)

// exitFailed is the exit code of a node that stops itself, or cannot start (runlog help
// exit-codes).
const exitFailed = 8

// process is one life of a node.
type process struct {
	cmd    *exec.Cmd
	words  *await.Words
	exited chan struct{}
	// meant: the test has ended the process, or expects its end.
	meant atomic.Bool
}

// spawn starts a process in a group of its own, whose words also go to a file, after those of
// earlier lives. It calls ended if the process ends and the test did not expect that.
func spawn(cmd *exec.Cmd, log string, ended func(*process)) (*process, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("procs: %w", err)
	}
	p := &process{cmd: cmd, words: &await.Words{File: f}, exited: make(chan struct{})}
	// A pipe: what limits the files of the process must not cut its log.
	cmd.Stderr, cmd.SysProcAttr = p.words, attributes()
	if err := cmd.Start(); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("procs: %w", err)
	}
	go func() {
		_ = cmd.Wait()
		_ = f.Close()
		if !p.meant.Load() {
			ended(p)
		}
		close(p.exited)
	}()
	return p, nil
}

// signal sends a signal to the process group.
func (p *process) signal(s syscall.Signal) error { return syscall.Kill(-p.cmd.Process.Pid, s) }

// kill ends the process at once, also a paused one.
func (p *process) kill() {
	p.meant.Store(true)
	_ = p.signal(syscall.SIGKILL)
	<-p.exited
}

func (p *process) up() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// said returns what this life has written.
func (p *process) said() string { return p.words.String() }

// lastLine returns the last line of what this life has written.
func (p *process) lastLine() string {
	lines := strings.Split(strings.TrimSpace(p.said()), "\n")
	return lines[len(lines)-1]
}
