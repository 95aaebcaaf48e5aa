package command

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// prepare gives the process a group of its own, and lets it end with the worker.
func prepare(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitExit returns when the process has exited, and leaves it to be reaped: until then no other
// process, and no other group, has its number.
func awaitExit(cmd *exec.Cmd) (reaped bool, _ error) {
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return false, nil
		}
	}
}

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
