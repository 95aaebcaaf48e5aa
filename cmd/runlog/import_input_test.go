package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
	if _, err := in.Write([]byte(closedRecord("run"))); err != nil {
		t.Fatal(err)
	}
	for begun := time.Now(); len(entries(t, temp)) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > 20*time.Second {
			t.Fatal("nothing is put aside")
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	hung := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait()
	hung.Stop()
	if code := cmd.ProcessState.ExitCode(); code != int(exitInterrupted) {
		t.Errorf("exit code %d, want %d", code, exitInterrupted)
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

// TestChangedInput: what was not checked is not imported, whether a file was changed before it is
// read again or meanwhile.
func TestChangedInput(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records.jsonl")
	read := func(change func(*source)) (items int, err error) {
		t.Helper()
		if err := os.WriteFile(path, []byte(closedRecord("run")), 0o600); err != nil {
			t.Fatal(err)
		}
		a := app{stdin: &bytes.Buffer{}}
		from, err := a.source(t.Context(), path, path+".spool")
		if err != nil {
			t.Fatal(err)
		}
		change(&from)
		chunks := make(chan chunk)
		in := intake{paths: []string{path}, records: true, checked: true, sources: map[string]source{path: from}, out: chunks}
		go in.read(t.Context())
		for c := range chunks {
			items += len(c.items)
			err = errors.Join(err, c.err)
			if c.err != nil {
				break
			}
		}
		return items, err
	}
	if items, err := read(func(*source) {}); items != 1 || err != nil {
		t.Errorf("as it was: %d records, %v", items, err)
	}
	more := func(*source) {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString(closedRecord("other"))
		}
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if items, err := read(more); items != 0 || !errors.Is(err, errInputChanged) {
		t.Errorf("grown: %d records, %v", items, err)
	}
	scrambled := func(s *source) {
		if err := os.WriteFile(path, []byte(strings.Repeat("x", int(s.size))), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, s.modified); err != nil {
			t.Fatal(err)
		}
	}
	if items, err := read(scrambled); items != 0 || !errors.Is(err, errInputChanged) {
		t.Errorf("scrambled: %d records, %v", items, err)
	}
}
