package main

import (
	"os"
	"strings"
	"testing"

	"runlog/client/command/output"
	"runlog/testbed/await"
)

// closedRecord is a run of one record.
func closedRecord(run string) string {
	return line("RunCancelled", run, `,"eventId":"0190b5a4-3c2e-7d11-8a4f-000000000001","runSeq":1,"persistedAt":"2024-05-01T10:00:00Z"`) + "\n"
}

// TestImportOfAPipe: a named input that can be read only once is imported as any other, and nothing
// of it stays behind.
func TestImportOfAPipe(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	node := spawnNode(t, t.TempDir())
	target := processes{t: t, server: node.ready(t).GRPC}
	code, out, errs := target.run(closedRecord("run"), "import", "--admin="+node.ready(t).Admin, "/dev/stdin")
	if code != 0 || !strings.Contains(out, "1 inserted") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	empty(t, temp)
}

// TestInterruptedImport: Ctrl-C ends an import that waits for its input, and nothing of it stays
// behind.
func TestInterruptedImport(t *testing.T) {
	temp := t.TempDir()
	cmd := runlogCommand([]string{"TMPDIR=" + temp}, "import", "-")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	if _, err := in.Write([]byte(closedRecord("run"))); err != nil {
		t.Fatal(err)
	}
	await.Poll(t, "a file in which the input is put aside", func() bool { return len(entries(t, temp)) > 0 })
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != int(output.ExitInterrupted) {
		t.Errorf("exit code %d, want %d", code, output.ExitInterrupted)
	}
	empty(t, temp)
}

func entries(t *testing.T, dir string) []os.DirEntry {
	t.Helper()
	found, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func empty(t *testing.T, dir string) {
	t.Helper()
	if left := entries(t, dir); len(left) > 0 {
		t.Errorf("%s is left behind", left[0].Name())
	}
}
