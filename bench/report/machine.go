package report

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Machine describes the measuring machine, as far as it affects figures.
type Machine struct {
	CPU        string `json:"cpu"`
	Cores      int    `json:"cores"`
	FileSystem string `json:"fileSystem"`
	Platform   string `json:"platform"`
	Go         string `json:"go"`
}

const unknown = "unknown"

// DescribeMachine describes this machine, with the file system that dir is on.
func DescribeMachine(dir string) Machine {
	return Machine{
		CPU:        cpuModel(),
		Cores:      runtime.NumCPU(),
		FileSystem: fileSystem(dir),
		Platform:   runtime.GOOS + "/" + runtime.GOARCH,
		Go:         runtime.Version(),
	}
}

// cpuModel reads /proc/cpuinfo (proc_cpuinfo(5)); only Linux has it, and not on every architecture.
func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return unknown
	}
	for line := range strings.Lines(string(text)) {
		key, value, found := strings.Cut(line, ":")
		if found && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return unknown
}

// fileSystem returns the type of dir's file system, such as "ext4", from the mount with the longest
// matching path (proc_pid_mounts(5)).
func fileSystem(dir string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return unknown
	}
	if target, err := filepath.EvalSymlinks(dir); err == nil {
		dir = target
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return unknown
	}
	return typeOfMount(string(mounts), dir)
}

func typeOfMount(mounts, dir string) string {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	found, longest := unknown, -1
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			continue
		}
		at := strings.TrimSuffix(unescape.Replace(fields[1]), "/")
		// A later mount on the same path hides an earlier one.
		if (dir == at || strings.HasPrefix(dir, at+"/")) && len(at) >= longest {
			found, longest = fields[2], len(at)
		}
	}
	return found
}
