//go:build unix

package procs

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
)

// Build builds the command runlog from the module in the directory source, which says that it is
// version. It is built as the tests are, so that the build cache has most of it.
func Build(ctx context.Context, source, to, version string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags", "-X main.version="+version, "-o", to, "./cmd/runlog")
	cmd.Dir = source
	return output(cmd)
}

// output runs a command that is to succeed, and makes what it said part of the error.
func output(cmd *exec.Cmd) error {
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("procs: %v: %w: %s", cmd.Args, err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}
