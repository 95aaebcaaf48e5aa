package command

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tree is a command with all that it has started, below its guard.
type tree struct {
	id      string // of idVariable
	guard   *exec.Cmd
	control *os.File
	report  *os.File
	exited  chan struct{} // of the command
	end     ending        // once exited is closed
}

// start starts a command below a guard.
func start(cmd *exec.Cmd, id string) (*tree, error) {
	if cmd.Err != nil {
		return nil, cmd.Err
	}
	theirControl, control, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirControl.Close()
	report, theirReport, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, control.Close())
	}
	defer theirReport.Close()
	guard := exec.Command("/proc/self/exe")
	guard.Args = append([]string{guardName, cmd.Path}, cmd.Args...)
	guard.Dir, guard.Env, guard.Stdin, guard.Stdout, guard.Stderr = cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr
	guard.ExtraFiles = []*os.File{theirControl, theirReport}
	guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	t := &tree{id: id, guard: guard, control: control, report: report, exited: make(chan struct{})}
	if err := guard.Start(); err != nil {
		_, _ = control.Close(), report.Close()
		if e, ok := errors.AsType[*os.PathError](err); ok {
			e.Path = cmd.Path // The caller does not know the guard.
		}
		return nil, err
	}
	_ = theirReport.Close() // The report ends with the guard.
	var errno uint32
	_ = binary.Read(report, binary.NativeEndian, &errno) // A command may have killed its guard.
	if errno != 0 {
		close(t.exited)
		t.kill()
		return nil, &os.PathError{Op: "fork/exec", Path: cmd.Path, Err: syscall.Errno(errno)}
	}
	go t.await()
	return t, nil
}

// await awaits the end of the command.
func (t *tree) await() {
	defer close(t.exited)
	var status syscall.WaitStatus
	if binary.Read(t.report, binary.NativeEndian, (*uint32)(&status)) != nil {
		t.end = ending{signal: "killed"} // The kernel kills the command with its guard.
		return
	}
	t.end = endingOf(status)
}

// terminate asks all processes of the command to end.
func (t *tree) terminate() { _, _ = t.control.Write([]byte{0}) }

// patience is how long a guard may take to kill all processes of its command. The kernel may hold
// one up that waits for a disk.
const patience = 5 * time.Second

// kill ends all processes of the command, and returns once they have ended.
func (t *tree) kill() {
	_ = t.control.Close()
	ended := make(chan struct{})
	go func() {
		_ = t.guard.Wait()
		close(ended)
	}()
	if !within(ended, patience) {
		_ = t.guard.Process.Kill()
		<-ended
	}
	killMarked(idVariable + "=" + t.id) // A command may have killed or stopped its guard.
	<-t.exited
	_ = t.report.Close()
}

// Conceal keeps the environment and the memory of this process from its commands, which have the
// same user.
func Conceal() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

// maxSweeps bounds how often killMarked looks again, in case that a process starts others
// meanwhile.
const maxSweeps = 20

// killMarked kills all processes of this user whose environment has an entry.
func killMarked(entry string) {
	for range maxSweeps {
		environments, _ := filepath.Glob("/proc/[0-9]*/environ") // The pattern is valid.
		found := false
		for _, name := range environments {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			if err == nil && hasEntry(name, entry) && killOne(pid, name, entry) {
				found = true
			}
		}
		if !found {
			return
		}
	}
}

func hasEntry(name, entry string) bool {
	text, err := os.ReadFile(name)
	return err == nil && bytes.Contains(append([]byte{0}, text...), []byte("\x00"+entry+"\x00"))
}

// killOne kills a process, if it is still the one that has the entry.
func killOne(pid int, name, entry string) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return hasEntry(name, entry) && unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}
