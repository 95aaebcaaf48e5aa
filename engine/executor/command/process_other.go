//go:build !linux

package command

import "os/exec"

// tree is a command. What it starts is ended with it if it stays in its group.
type tree struct {
	cmd    *exec.Cmd
	exited chan struct{}
	end    ending // once exited is closed
}

func start(cmd *exec.Cmd, _ string) (*tree, error) {
	prepare(cmd)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	t := &tree{cmd: cmd, exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		t.end = endOf(cmd.ProcessState)
		close(t.exited)
	}()
	return t, nil
}

// Conceal does nothing: only Linux lets a process read the environments of others.
func Conceal() error { return nil }
