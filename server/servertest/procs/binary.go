//go:build unix

package procs

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
)

// Build builds the command runlog from the module in the directory source, with a version and with
// further arguments of go build. It compiles with the flags of the tests, so that the build cache
// has most of it. It leaves out debug information, which takes half of the linker's time.
func Build(ctx context.Context, source, to, version string, args ...string) error {
	args = append([]string{"build", "-ldflags", "-w -X main.version=" + version, "-o", to}, args...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/runlog")...)
	cmd.Dir = source
	return output(cmd)
}

// output runs a command, and adds the command's output to its error.
func output(cmd *exec.Cmd) error {
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("procs: %v: %w: %s", cmd.Args, err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}
