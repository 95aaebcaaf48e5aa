package command

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guardName is argv[0] of the process that guards a command. It is this program again: a command
// must not outlive a worker that is killed, and only another process can see to that.
const guardName = "runlog-command-guard"

// The files of a guard. The worker holds the other ends.
const (
	controlFD = 3 // a byte: SIGTERM to all processes of the command; the end: SIGKILL to them
	reportFD  = 4 // two numbers of 32 bits: the error of the start or 0, and later the wait status
)

// Bits of prctl(PR_SET_SECUREBITS), of linux/securebits.h: root gets no capabilities by exec.
const noRoot, noRootLocked = 1 << 0, 1 << 1

func init() {
	if os.Args[0] == guardName {
		os.Exit(guard(os.Args[1], os.Args[2:]))
	}
}

// guard runs a command, and ends when the worker lets go of the control: then it kills all that the
// command has started. As a subreaper it is the parent of every process whose own parent has ended,
// so none leaves it by a session, a group or an environment of its own.
func guard(path string, argv []string) int {
	signal.Notify(make(chan os.Signal, 1)) // The worker alone ends its guard.
	unix.CloseOnExec(controlFD)
	unix.CloseOnExec(reportFD)
	report := os.NewFile(reportFD, "report")
	child, err := begin(path, argv)
	errno, ok := errors.AsType[syscall.Errno](err)
	if err != nil && !ok {
		errno = syscall.EIO
	}
	_ = binary.Write(report, binary.NativeEndian, uint32(errno)) // The worker may be gone.
	if err != nil {
		return 1
	}
	released := make(chan struct{})
	go obey(os.NewFile(controlFD, "control"), released)
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // No process is left.
			<-released
			return 0
		case pid == child:
			_ = binary.Write(report, binary.NativeEndian, uint32(status))
		}
	}
}

// begin starts the command, which can get no rights that the worker does not have. As root it has
// none of its capabilities: those open the environment and the memory of the worker.
func begin(path string, argv []string) (pid int, err error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, err
	}
	if os.Geteuid() == 0 {
		// Where root may not do that, it does not have the capabilities in question.
		_ = unix.Prctl(unix.PR_SET_SECUREBITS, noRoot|noRootLocked, 0, 0, 0)
	}
	child, err := os.StartProcess(path, argv, &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return 0, err
	}
	// The worker awaits the ends of the pipes.
	for _, f := range []*os.File{os.Stdin, os.Stdout, os.Stderr} {
		_ = f.Close()
	}
	return child.Pid, nil
}

// obey signals the processes of the command as the worker says, and kills them when it lets go. It
// ends with the guard.
func obey(control *os.File, released chan<- struct{}) {
	for said := bufio.NewReader(control); ; {
		if _, err := said.ReadByte(); err != nil {
			break
		}
		signalAll(unix.SIGTERM)
	}
	close(released)
	for {
		signalAll(unix.SIGKILL)
		time.Sleep(time.Millisecond) // Others may have been started meanwhile.
	}
}

// signalAll sends a signal to all processes below this one.
func signalAll(s syscall.Signal) {
	for _, p := range below(os.Getpid()) {
		p.signal(s)
	}
}

// listed is a process as it was listed. Its id may be given again once it has ended.
type listed struct {
	pid, parent int
	started     string // in ticks since the boot
}

// below lists the processes below another, parents first.
func below(pid int) (all []listed) {
	children := map[int][]listed{}
	names, _ := filepath.Glob("/proc/[0-9]*/stat") // The pattern is valid.
	for _, name := range names {
		if p, ok := readProcess(name); ok {
			children[p.parent] = append(children[p.parent], p)
		}
	}
	all = children[pid]
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i].pid]...)
	}
	return all
}

// readProcess reads the stat of a process, unless it has ended.
func readProcess(name string) (p listed, ok bool) {
	text, err := os.ReadFile(name)
	after := string(text[bytes.LastIndexByte(text, ')')+1:]) // The name before it is any text.
	fields := strings.Fields(after)
	if err != nil || len(fields) < 20 {
		return p, false
	}
	p.pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(name)))
	p.parent, _ = strconv.Atoi(fields[1])
	p.started = fields[19]
	return p, true
}

// signal signals the process, and no other that has got its id since. What has the id is opened
// first, as a pidfd where the kernel has them, and compared with the listed process then.
func (p listed) signal(s syscall.Signal) {
	opened, err := os.FindProcess(p.pid)
	if err != nil {
		return
	}
	if now, ok := readProcess("/proc/" + strconv.Itoa(p.pid) + "/stat"); ok && now.started == p.started {
		_ = opened.Signal(s)
	}
	_ = opened.Release()
}
