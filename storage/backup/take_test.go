package backup

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/proto"

	"runlog/audit/proof"
	runlogv1 "runlog/proto/runlog/v1"
)

// TestTake: a backup has the node's files; the next one is sent only what is new, and has all; so
// has the first, still.
func TestTake(t *testing.T) {
	r, n := Open(vfs.NewMem(), "dir"), newFakeNode()
	if names := listed(t, r); names != nil {
		t.Errorf("backups of no directory: %q", names)
	}
	first := n.take(t, r)
	if first.SentFiles != 6 || first.KnownFiles != 0 || first.SentBytes != first.Bytes() {
		t.Errorf("first: %+v", first)
	}
	n.wantFiles(t, r, first.Manifest)
	old := *n
	n.next()
	var last Progress
	second, err := r.Take(n.source, TakeOptions{Progress: func(p Progress) { last = p }})
	if err != nil {
		t.Fatal(err)
	}
	if second.KnownFiles != 2 || second.SentFiles != 4 || last != (Progress{second.Bytes(), second.Bytes(), 6, 6}) {
		t.Errorf("second: %+v, progress %+v", second, last)
	}
	n.wantFiles(t, r, second.Manifest)
	old.wantFiles(t, r, first.Manifest)
	if full, err := r.Take(n.source, TakeOptions{Full: true}); err != nil || full.KnownFiles != 0 || len(n.asked.Known) > 0 {
		t.Errorf("full: %+v, %v", full, err)
	}
	// Another node's tables are others, under the same names.
	other := newFakeNode()
	other.origin, other.position = "n2.00000002/1", 13
	other.files["000006.sst"] = "another table, a little LONGER"
	if taken := other.take(t, r); taken.KnownFiles != 0 || len(other.asked.Known) != 1 {
		t.Errorf("of another node: %+v", taken)
	}
	if names := listed(t, r); len(names) != 3 || !slices.IsSorted(names) || names[0] != first.Name || !strings.HasPrefix(names[1], "19700101T000011.000Z-11-") {
		t.Errorf("names %q", names)
	}
	if newest, err := r.Find(""); err != nil || newest.Position != 13 {
		t.Errorf("newest: %+v, %v", newest, err)
	}
	if m, err := r.Find("19700101T000010"); err != nil || m.Name != first.Name {
		t.Errorf("by the begin of its name: %+v, %v", m, err)
	}
	for _, name := range []string{"1970", "x"} {
		if m, err := r.Find(name); !errors.Is(err, ErrNone) {
			t.Errorf("%q: %+v, %v", name, m, err)
		}
	}
}

// TestTakeCut: a stream that is cut after any message leaves no backup; the next one has the tables
// that came whole.
func TestTakeCut(t *testing.T) {
	whole := len(newFakeNode().messages(nil))
	for cut := range whole {
		r, n := Open(vfs.NewMem(), "dir"), newFakeNode()
		earlier := n.take(t, r)
		n.next()
		n.cutAfter(cut)
		if _, err := r.Take(n.source, TakeOptions{}); !errors.Is(err, errCut) && cut < len(n.messages(n.asked)) {
			t.Fatalf("cut after %d: %v", cut, err)
		}
		if cut >= len(n.messages(n.asked)) {
			continue
		}
		if names := listed(t, r); !slices.Equal(names, []string{earlier.Name}) {
			t.Fatalf("cut after %d: backups %q", cut, names)
		}
		n.change = nil
		taken := n.take(t, r)
		if cut == len(n.messages(n.asked))-1 && taken.KnownFiles < 3 {
			t.Errorf("cut before its manifest: %+v", taken)
		}
		n.wantFiles(t, r, taken.Manifest)
	}
	// Also the first one, which no manifest tells of.
	r, n := Open(vfs.NewMem(), "dir"), newFakeNode()
	n.cutAfter(whole - 1)
	if _, err := r.Take(n.source, TakeOptions{}); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	n.change = nil
	if taken := n.take(t, r); taken.KnownFiles != 3 || taken.SentFiles != 3 {
		t.Errorf("%+v", taken)
	}
	if text, err := readFile(r.fs, r.path(incompleteFile), 1<<20); err == nil {
		t.Errorf("left: %s", text)
	}
}

// TestTakeJournalDamaged: what is noted of a cut backup is not believed when it is damaged, and
// hinders nothing.
func TestTakeJournalDamaged(t *testing.T) {
	r, n := Open(vfs.NewMem(), "dir"), newFakeNode()
	n.cutAfter(len(n.messages(nil)) - 1)
	_, _ = r.Take(n.source, TakeOptions{})
	good, err := readFile(r.fs, r.path(incompleteFile), 1<<20)
	if err != nil || len(good) == 0 {
		t.Fatal(err)
	}
	for i := range good {
		for _, bad := range []string{string(good[:i]), string(good[:i]) + string(good[i]^1) + string(good[i+1:])} {
			if err := writeFile(r.fs, r.path(incompleteFile), []byte(bad)); err != nil {
				t.Fatal(err)
			}
			j, err := openJournal(r)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range j.files {
				if is, ok := n.files[f.Name]; !ok || len(is) != int(f.Size) || f != n.statement().Files[slices.IndexFunc(n.statement().Files, func(o proof.BackupFile) bool { return o.Name == f.Name })] {
					t.Fatalf("byte %d: believed %+v", i, f)
				}
			}
		}
	}
	n.change = nil
	n.wantFiles(t, r, n.take(t, r).Manifest)
}

// TestTakeRefuses: what is no backup leaves none, each with its reason.
func TestTakeRefuses(t *testing.T) {
	at := func(i int, f func(*runlogv1.BackupResponse)) func(int, *runlogv1.BackupResponse) error {
		return func(j int, m *runlogv1.BackupResponse) error {
			if i == j {
				f(m)
			}
			return nil
		}
	}
	last := len(newFakeNode().messages(nil)) - 1
	note := func(from, to string) func(int, *runlogv1.BackupResponse) error {
		return at(last, func(m *runlogv1.BackupResponse) {
			m.Part = &runlogv1.BackupResponse_Manifest{Manifest: strings.Replace(m.GetManifest(), from, to, 1)}
		})
	}
	become := func(other *runlogv1.BackupResponse) func(*runlogv1.BackupResponse) {
		return func(m *runlogv1.BackupResponse) { proto.Reset(m); proto.Merge(m, other) }
	}
	for name, c := range map[string]struct {
		change func(int, *runlogv1.BackupResponse) error
		err    error
		says   string
	}{
		"no begin":         {at(0, become(&runlogv1.BackupResponse{})), ErrStream, "out of order"},
		"two begins":       {at(1, become(newFakeNode().messages(nil)[0])), ErrStream, "out of order"},
		"no file":          {at(1, become(newFakeNode().messages(nil)[2])), ErrStream, "out of order"},
		"another byte":     {at(2, func(m *runlogv1.BackupResponse) { m.GetData()[0] ^= 1 }), ErrStream, "000004.sst has SHA-256"},
		"more bytes":       {at(2, become(&runlogv1.BackupResponse{Part: &runlogv1.BackupResponse_Data{Data: make([]byte, 99)}})), ErrStream, "more than its 15 bytes"},
		"fewer bytes":      {at(2, func(m *runlogv1.BackupResponse) { m.Part = &runlogv1.BackupResponse_Data{Data: m.GetData()[1:]} }), ErrStream, "ends before its 15 bytes"},
		"not there":        {at(1, func(m *runlogv1.BackupResponse) { m.GetFile().Known = true }), ErrStream, "omits 000004.sst"},
		"another name":     {at(5, func(m *runlogv1.BackupResponse) { m.GetEnd().Name = "x" }), ErrStream, "ends as x"},
		"short digest":     {at(5, func(m *runlogv1.BackupResponse) { m.GetEnd().Sha256 = []byte{1} }), ErrStream, "000004.sst"},
		"other files":      {note("000004.sst 15", "000004.sst 16"), ErrStream, "lists other files"},
		"a file less":      {note("file OPTIONS-000003 0 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n", ""), ErrStream, "lists other files"},
		"another cluster":  {note("cluster 01", "cluster 02"), ErrStream, "lists other files"},
		"unknown line":     {note("term 1\n", "term 1\ncolour red\n"), ErrManifest, "colour"},
		"a later title":    {note("runlog backup 1", "runlog backup 2"), proof.ErrBackupFormat, "runlog backup 2"},
		"manifest is none": {note("\n\n", "\n"), ErrManifest, "not a note"},
		"no room":          {at(0, func(m *runlogv1.BackupResponse) { m.GetBegin().Bytes = 1 << 62 }), ErrNoRoom, "4611686018427387904"},
		"silly sizes":      {at(0, func(m *runlogv1.BackupResponse) { m.GetBegin().KnownBytes = 1 << 62 }), ErrStream, "known"},
	} {
		t.Run(name, func(t *testing.T) {
			// On a disk that tells how much room it has.
			r, n := Open(vfs.Default, t.TempDir()), newFakeNode()
			n.change = c.change
			_, err := r.Take(n.source, TakeOptions{})
			if !errors.Is(err, c.err) || !strings.Contains(fmt.Sprint(err), c.says) {
				t.Errorf("%v, want %v with %q", err, c.err, c.says)
			}
			if names := listed(t, r); len(names) > 0 {
				t.Errorf("backups %q", names)
			}
			n.change = nil
			n.wantFiles(t, r, n.take(t, r).Manifest)
		})
	}
	// Nothing after the manifest, and no other cluster.
	r, n := Open(vfs.NewMem(), "dir"), newFakeNode()
	n.take(t, r)
	foreign := newFakeNode()
	foreign.cluster = 2
	if _, err := r.Take(foreign.source, TakeOptions{}); !errors.Is(err, ErrForeign) {
		t.Errorf("another cluster's: %v", err)
	}
	t.Run("ends early", func(t *testing.T) {
		all := n.messages(nil)
		_, err := r.Take(func(*runlogv1.BackupRequest) iter.Seq2[*runlogv1.BackupResponse, error] {
			return func(yield func(*runlogv1.BackupResponse, error) bool) {
				for _, m := range all[:len(all)-1] {
					if !yield(m, nil) {
						return
					}
				}
			}
		}, TakeOptions{})
		if !errors.Is(err, ErrStream) || !strings.Contains(err.Error(), "before its manifest") {
			t.Error(err)
		}
	})
}

// TestBusy: one at a time changes a directory.
func TestBusy(t *testing.T) {
	for _, disk := range []vfs.FS{vfs.NewMem(), vfs.Default} {
		r, n := Open(disk, t.TempDir()), newFakeNode()
		n.change = func(i int, _ *runlogv1.BackupResponse) error {
			if i == 3 {
				if _, err := r.Take(newFakeNode().source, TakeOptions{}); !errors.Is(err, ErrBusy) {
					t.Errorf("take: %v", err)
				}
				if _, err := r.Prune(t.Context(), 1, nil); !errors.Is(err, ErrBusy) {
					t.Errorf("prune: %v", err)
				}
			}
			return nil
		}
		n.take(t, r)
	}
}
