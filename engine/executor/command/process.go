package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

const (
	// drain is how long the pipes may stay open after the process has exited, before what holds
	// them open is ended: the readers need a moment for what the pipes have.
	drain = 200 * time.Millisecond
	// lastDrain bounds the wait for the pipes after all processes are killed.
	lastDrain = time.Second
)

// process is a command while it runs.
type process struct {
	cmd            *exec.Cmd
	id             string // of idVariable
	stdin          []byte
	stdout, stderr *capture
	grace          time.Duration
}

// ending is how a command has ended.
type ending struct {
	signal string // empty: none has ended it
	code   int
}

func (e ending) String() string {
	if e.signal != "" {
		return "killed by the signal " + e.signal
	}
	return fmt.Sprintf("exit status %d", e.code)
}

// run runs the process, and ends everything that it has started. It reports whether it had to
// interrupt the process. The error is that of the start.
func (p *process) run(ctx context.Context) (end ending, interrupted bool, err error) {
	pipes, err := p.openPipes()
	if err != nil {
		return ending{}, false, err
	}
	defer pipes.close()
	t, err := start(p.cmd, p.id)
	if err != nil {
		return ending{}, false, err
	}
	pipes.closeTheirs()
	interrupted = p.await(ctx, t, pipes.copy(p))
	return t.end, interrupted, nil
}

// await returns when the process has exited, all that it has started is killed, and the pipes are
// read.
func (p *process) await(ctx context.Context, t *tree, copied <-chan struct{}) (interrupted bool) {
	defer t.kill()
	deadline := time.Time{} // of the grace
	select {
	case <-t.exited:
	case <-ctx.Done():
		interrupted = true
		deadline = time.Now().Add(p.grace)
		t.terminate()
		if !within(t.exited, p.grace) {
			return true
		}
	}
	if !within(copied, drain) {
		if !interrupted {
			deadline = time.Now().Add(p.grace)
			t.terminate()
		}
		within(copied, time.Until(deadline))
	}
	return interrupted
}

// within waits for done, and reports whether it is closed in time.
func within(done <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// pipes are the streams of a process: the ends of this one, and those of the other one.
type pipes struct {
	stdin, stdout, stderr *os.File
	theirs                []*os.File
	copied                sync.WaitGroup
	done                  chan struct{} // nil: nothing is copied
}

func (p *process) openPipes() (*pipes, error) {
	s := &pipes{}
	open := func() (r, w *os.File, err error) {
		if r, w, err = os.Pipe(); err != nil {
			s.close()
		}
		return r, w, err
	}
	in, stdin, err := open()
	if err != nil {
		return nil, err
	}
	s.stdin, s.theirs = stdin, append(s.theirs, in)
	stdout, out, err := open()
	if err != nil {
		return nil, err
	}
	s.stdout, s.theirs = stdout, append(s.theirs, out)
	stderr, errs, err := open()
	if err != nil {
		return nil, err
	}
	s.stderr, s.theirs = stderr, append(s.theirs, errs)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = in, out, errs
	return s, nil
}

// closeTheirs closes the ends of the process, which has its own copies.
func (s *pipes) closeTheirs() {
	for _, f := range s.theirs {
		_ = f.Close()
	}
	s.theirs = nil
}

// copy reads and writes the streams. The channel is closed when stdout and stderr are at their end.
func (s *pipes) copy(p *process) <-chan struct{} {
	s.done = make(chan struct{})
	var outputs sync.WaitGroup
	for to, from := range map[*capture]*os.File{p.stdout: s.stdout, p.stderr: s.stderr} {
		outputs.Go(func() { _, _ = io.Copy(to, from) })
	}
	s.copied.Go(func() {
		outputs.Wait()
		close(s.done)
	})
	s.copied.Go(func() {
		_, _ = s.stdin.Write(p.stdin) // A process need not read it.
		_ = s.stdin.Close()
	})
	return s.done
}

// close ends the streams, and joins what copies them.
func (s *pipes) close() {
	s.closeTheirs()
	if s.done != nil {
		within(s.done, lastDrain)
	}
	for _, f := range []*os.File{s.stdin, s.stdout, s.stderr} {
		_ = f.Close() // It may be nil or closed.
	}
	s.copied.Wait()
}
