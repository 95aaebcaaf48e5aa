package storage_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/storage"
	"runlog/storage/machine"
	"runlog/storage/storagetest"
	"runlog/storage/table"
)

// stub is a machine that is what a test says.
type stub struct {
	kind   uint32
	tables []string
	apply  func(tx *storage.Tx, op []byte) (reply []byte, refused, fatal error)
}

func (s stub) Kind() uint32        { return s.kind }
func (s stub) Level([]byte) uint32 { return storage.CoreLevel }

func (s stub) Tables() (tables []storage.Table) {
	for _, prefix := range s.tables {
		tables = append(tables, storage.Table{Prefix: []byte(prefix), Name: "stub"})
	}
	return tables
}

func (s stub) Apply(tx *storage.Tx, op []byte) (reply []byte, refused, fatal error) {
	return s.apply(tx, op)
}

// TestMachinesAreApart: two machines never share a kind or a key, nor does one share a key with the
// core; the refusal is one line that names both.
func TestMachinesAreApart(t *testing.T) {
	for name, c := range map[string]struct {
		machines []storage.Machine
		says     []string // nil: taken
	}{
		"none":               {nil, nil},
		"all of the build":   {machine.All(), nil},
		"neighbours":         {[]storage.Machine{stub{kind: 50, tables: []string{"A", "Ba"}}, stub{kind: 51, tables: []string{"Bb", "C"}}}, nil},
		"no tables":          {[]storage.Machine{stub{kind: 50}, stub{kind: 51}}, nil},
		"one prefix":         {[]storage.Machine{stub{kind: 50, tables: []string{"A"}}, stub{kind: 51, tables: []string{"A"}}}, []string{"machine 50", "machine 51", `"A"`, "another prefix"}},
		"begin of a prefix":  {[]storage.Machine{stub{kind: 50, tables: []string{"Abc"}}, stub{kind: 51, tables: []string{"Ab"}}}, []string{"machine 50", "machine 51", `"Ab"`, `"Abc"`}},
		"its own":            {[]storage.Machine{stub{kind: 50, tables: []string{"A", "A1"}}}, []string{"machine 50"}},
		"the core":           {[]storage.Machine{stub{kind: 50, tables: []string{"c"}}}, []string{"machine 50", "the core (chunks)"}},
		"below the core":     {[]storage.Machine{stub{kind: 50, tables: []string{"counter"}}}, []string{"machine 50", "the core (chunks)"}},
		"the level":          {[]storage.Machine{stub{kind: 50, tables: []string{"l"}}}, []string{"feature level"}},
		"everything":         {[]storage.Machine{stub{kind: 50, tables: []string{""}}}, []string{"machine 50", "empty prefix"}},
		"one kind":           {[]storage.Machine{stub{kind: 50}, stub{kind: 50}}, []string{"machine 50", "the same kind"}},
		"a kind of the core": {[]storage.Machine{stub{kind: 1}}, []string{"machine 1", "belong to the core"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := storage.Open(storage.Options{
				Dir: "store", FS: vfs.NewMem(), Cluster: storagetest.Cluster, Machines: c.machines, Fail: func(error) {},
			})
			if err == nil {
				_ = s.Close()
			}
			if (err == nil) != (c.says == nil) {
				t.Fatalf("Open: %v", err)
			}
			for _, text := range c.says {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q does not say %q", err, text)
				}
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("%q has more than a line", err)
			}
		})
	}
}

// TestMachineFaultsAreFatal: a key that is not the machine's, an operation that it does not know
// and its own error stop the node, whatever else the machine says. Nothing of the proposal stays
// (D10).
func TestMachineFaultsAreFatal(t *testing.T) {
	ours := errors.New("of the machine")
	for name, c := range map[string]struct {
		apply func(tx *storage.Tx) (refused, fatal error)
		is    error
		says  string
	}{
		"set":       {func(tx *storage.Tx) (_, _ error) { tx.Set([]byte("Bx"), nil); return nil, nil }, nil, "outside"},
		"core":      {func(tx *storage.Tx) (_, _ error) { tx.Set([]byte("a"), nil); return nil, nil }, nil, "outside"},
		"empty key": {func(tx *storage.Tx) (_, _ error) { tx.Delete(nil); return nil, nil }, nil, "outside"},
		"get":       {func(tx *storage.Tx) (_, _ error) { _, _ = tx.Get([]byte("B")); return nil, nil }, nil, "outside"},
		"scan": {func(tx *storage.Tx) (_, _ error) {
			for range tx.Scan([]byte("B"), nil) {
			}
			return nil, nil
		}, nil, "outside"},
		"refused as well": {func(tx *storage.Tx) (_, _ error) { tx.Delete([]byte("B")); return ours, nil }, nil, "outside"},
		"metadata":        {func(tx *storage.Tx) (_, _ error) { return nil, tx.SetMetadata("nobody", &storage.Metadata{}) }, nil, "does not exist"},
		"its own":         {func(*storage.Tx) (_, _ error) { return nil, ours }, ours, ""},
		"unknown":         {func(*storage.Tx) (_, _ error) { return nil, storage.ErrUnknownOperation }, storage.ErrUnknownOperation, "kind 50"},
	} {
		t.Run(name, func(t *testing.T) {
			l := open(t, storage.Options{Machines: []storage.Machine{stub{kind: 50, tables: []string{"A"}, apply: func(tx *storage.Tx, _ []byte) ([]byte, error, error) {
				tx.Set([]byte("A"), []byte("before"))
				refused, fatal := c.apply(tx)
				return nil, refused, fatal
			}}}})
			cmd, err := storage.EncodeCommand(storage.Operation{Kind: 50})
			if err != nil {
				t.Fatal(err)
			}
			p := storage.NewProposal(storagetest.Cluster, 0)
			p.Add(cmd)
			_, err = l.Store.Apply(1, 1, p.Seal(1))
			if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("Apply: %v", err)
			}
			if rows, err := l.Store.Dump(); err != nil || len(rows) > 0 {
				t.Errorf("%d rows stay, %v", len(rows)/2, err)
			}
			_ = l.Close()
		})
	}
}

// readRow returns a row of a machine; nil: there is none.
func readRow(s *storage.Store, kind uint32, key string) ([]byte, error) {
	return storage.ReadTables(s, kind, func(r table.Reader) ([]byte, error) { return r.Get([]byte(key)) })
}

// TestTablesOfNobody: only the tables of a machine of the store can be read, and within it only its
// own keys.
func TestTablesOfNobody(t *testing.T) {
	l := open(t, storage.Options{})
	defer func() { _ = l.Close() }()
	if _, err := readRow(l.Store, 50, "X"); err == nil || !strings.Contains(err.Error(), "kind 50") {
		t.Errorf("a machine that the store does not have: %v", err)
	}
	if _, err := readRow(l.Store, storagetest.WriterKind, "a"); err == nil {
		t.Error("a key of the core can be read")
	}
	_, err := storage.ReadTables(l.Store, storagetest.WriterKind, func(r table.Reader) (n int, err error) {
		for _, err := range r.Scan([]byte("a"), nil) {
			if err == nil {
				t.Error("keys of the core can be scanned")
			}
		}
		return 0, nil
	})
	if err != nil {
		t.Error(err)
	}
}
