package target

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode"
)

// ProcessStop is a little more than a node may take to drain.
const ProcessStop = 15 * time.Second

// Process is a program that the bench starts. It is ended by its id only.
type Process struct {
	cmd    *exec.Cmd
	name   string
	log    string
	exited chan struct{} // closed once it has ended and err is set
	err    error
	killed bool
}

// StartProcess starts a program with its standard output and error in the file log.
func StartProcess(log string, cmd *exec.Cmd) (*Process, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p := &Process{cmd: cmd, name: filepath.Base(cmd.Path), log: log, exited: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = f, f
	// A group of its own: Ctrl-C is for the bench, which ends its processes in order.
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("bench: start %s: %w", p.name, err)
	}
	go func() {
		if p.err = cmd.Wait(); p.err == nil {
			p.err = errors.New("exit status 0")
		}
		close(p.exited)
	}()
	return p, nil
}

// ID is the process id.
func (p *Process) ID() int { return p.cmd.Process.Pid }

// Wait returns once ready returns true; it polls every few milliseconds. It returns an error if the
// process ends first, or after limit.
func (p *Process) Wait(ctx context.Context, limit time.Duration, ready func() bool) error {
	deadline := time.Now().Add(limit)
	for !ready() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.exited:
			return fmt.Errorf("bench: %s did not start", p.name)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("bench: %s did not serve within %v; its last line: %s", p.name, limit, p.lastLine())
		}
	}
	return nil
}

// Kill ends the process with SIGKILL and returns once it is gone.
func (p *Process) Kill() error {
	err := p.cmd.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	if err == nil {
		p.killed = true
		<-p.exited
	}
	return err
}

// Stop asks the process to end. It is an error when it has ended before it was asked to, or does
// not end then.
func (p *Process) Stop() error { return p.StopWith(syscall.SIGTERM) }

// StopWith sends another signal than SIGTERM.
func (p *Process) StopWith(signal os.Signal) error {
	if p.killed {
		return nil
	}
	select {
	case <-p.exited:
		return fmt.Errorf("bench: %s ended by itself (%w); its last line: %s", p.name, p.err, p.lastLine())
	default:
	}
	_ = p.cmd.Process.Signal(signal)
	select {
	case <-p.exited:
		return nil
	case <-time.After(ProcessStop):
		return errors.Join(fmt.Errorf("bench: %s did not stop within %v and was killed; its last line: %s", p.name, ProcessStop, p.lastLine()), p.Kill())
	}
}

// lastLine returns the last printable line of the process's output.
func (p *Process) lastLine() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, lines[len(lines)-1])
}
