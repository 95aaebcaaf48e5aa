package target

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"runlog/bench/report"
)

// clockTicks is the unit in which Linux reports processor time to programs, on every architecture.
const clockTicks = 100

// readUsage reads /proc (proc(5)); only Linux has it.
func readUsage(pid int) (report.Usage, error) {
	read := func(file string) (string, error) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
		return string(text), err
	}
	status, err1 := read("status")
	io, err2 := read("io")
	stat, err3 := read("stat")
	if err := errors.Join(err1, err2, err3); err != nil {
		return report.Usage{}, err
	}
	u := report.Usage{PeakBytes: fieldOf(status, "VmHWM:") << 10, WrittenBytes: fieldOf(io, "write_bytes:")}
	// The second field is the program's name in parentheses, in which anything may be.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return report.Usage{}, fmt.Errorf("bench: /proc/%d/stat has %d fields", pid, len(fields))
	}
	user, err1 := strconv.ParseUint(fields[11], 10, 64)
	system, err2 := strconv.ParseUint(fields[12], 10, 64)
	u.CPUSeconds = float64(user+system) / clockTicks
	return u, errors.Join(err1, err2)
}

// fieldOf returns the number after a label at the beginning of a line, 0 when it is not there.
func fieldOf(text, label string) uint64 {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, label); ok {
			n, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			v, _ := strconv.ParseUint(n, 10, 64)
			return v
		}
	}
	return 0
}

// OwnMemory measures this process as Admin.Memory measures a node.
func OwnMemory() report.Memory {
	for range collections {
		runtime.GC()
	}
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	m := report.Memory{LiveBytes: float64(s.HeapAlloc + s.StackInuse)}
	if status, err := os.ReadFile("/proc/self/status"); err == nil {
		m.ResidentBytes = float64(fieldOf(string(status), "VmRSS:") << 10)
	}
	return m
}
