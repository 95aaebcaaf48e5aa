package proof

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"runlog/proto/contract"
)

func aBackup() *Backup {
	return &Backup{
		Format: 3, Cluster: [16]byte{1, 2, 3}, Node: "n1", Origin: "n1.5f2c8a01/2", Version: "v1.2.3", Made: 1770805800123456789,
		Position: 1234, Term: 5, RollingHash: contract.Digest{4}, CompleteThrough: 1770805799000000001, Runs: 7, Events: 99,
		Files: []BackupFile{{"000004.sst", 17, contract.Digest{5}}, {"MANIFEST-000001", 0, contract.Digest{6}}},
	}
}

// TestBackupStatement: what is read is what was written, whatever a node is called.
func TestBackupStatement(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := aBackup()
		b.Node, b.Version = rapid.String().Draw(t, "node"), rapid.String().Draw(t, "version")
		b.Made = rapid.Int64Range(0, 1<<62).Draw(t, "made")
		b.Position, b.Events = rapid.Uint64().Draw(t, "position"), rapid.Uint64().Draw(t, "events")
		st, err := ParseStatement(b.Statement().String())
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseBackup(st)
		if err != nil || !reflect.DeepEqual(got, b) {
			t.Fatalf("%+v, %v; want %+v", got, err, b)
		}
	})
}

// TestBackupStatementRefused: each has its own reason.
func TestBackupStatementRefused(t *testing.T) {
	text := aBackup().Statement().String()
	for name, c := range map[string]struct {
		old, new string
		err      error
		says     string
	}{
		"other title":       {BackupTitle, "runlog export 1", ErrStatement, "runlog export 1"},
		"later title":       {BackupTitle, "runlog backup 2", ErrBackupFormat, "runlog backup 2"},
		"no format":         {"format 3", "format three", ErrStatement, "three"},
		"unknown line":      {"term 5\n", "term 5\ncolour \"red\"\n", ErrStatement, "colour"},
		"missing line":      {"term 5\n", "", ErrStatement, "term"},
		"line twice":        {"term 5\n", "term 5\nterm 5\n", ErrStatement, "term"},
		"no number":         {"term 5", "term 05", ErrStatement, "05"},
		"path":              {"file 000004.sst", "file ../4.sst", ErrStatement, "../4.sst"},
		"hidden":            {"file 000004.sst", "file .4.sst", ErrStatement, ".4.sst"},
		"order":             {"file 000004.sst", "file Z.sst", ErrStatement, "after"},
		"size":              {"000004.sst 17", "000004.sst 017", ErrStatement, "017"},
		"huge":              {"000004.sst 17", "000004.sst 17592186044417", ErrStatement, "17592186044417"},
		"upper-case digest": {"17 05", "17 0A", ErrStatement, "0A"},
		"short digest":      {"17 05", "17 5", ErrStatement, "digits"},
		"origin":            {"n1.5f2c8a01/2", "n1.5f2c8a01", ErrStatement, "origin"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := strings.Replace(text, c.old, c.new, 1)
			if changed == text {
				t.Fatal("nothing was changed")
			}
			st, err := ParseStatement(changed)
			if err != nil {
				t.Fatal(err)
			}
			_, err = ParseBackup(st)
			if !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %v with %q", err, c.err, c.says)
			}
		})
	}
	empty := aBackup()
	empty.Files = nil
	if _, err := ParseBackup(empty.Statement()); !errors.Is(err, ErrStatement) {
		t.Errorf("no files: %v", err)
	}
}

// FuzzParseBackup: whatever is taken is written as it was read, so that no two texts mean the same.
func FuzzParseBackup(f *testing.F) {
	f.Add(aBackup().Statement().String())
	f.Add("runlog backup 1\nformat 1\n")
	f.Add("runlog backup 2\nformat 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		st, err := ParseStatement(text)
		if err != nil {
			return
		}
		b, err := ParseBackup(st)
		if err != nil {
			if !errors.Is(err, ErrStatement) && !errors.Is(err, ErrBackupFormat) {
				t.Fatalf("untyped: %v", err)
			}
			return
		}
		if again := b.Statement().String(); again != text {
			t.Fatalf("%q is read as %q", text, again)
		}
	})
}
