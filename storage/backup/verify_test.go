package backup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"runlog/audit/proof"
)

func signer(t testing.TB, cluster, seed byte) *proof.Signer {
	t.Helper()
	s, err := proof.NewSigner([16]byte{cluster}, [32]byte{seed})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// signed makes a backup that a key has signed.
func signed(t testing.TB) (*Repository, *fakeNode, *Manifest, *proof.Signer) {
	t.Helper()
	r, n, key := Open(vfs.NewMem(), "dir"), newFakeNode(), signer(t, 1, 1)
	n.sign = func(st *proof.Statement) string {
		note, err := key.Sign(st)
		if err != nil {
			t.Fatal(err)
		}
		return note
	}
	return r, n, n.take(t, r).Manifest, key
}

// TestSigned: Signed returns the key that has signed a manifest. It refuses a manifest that another
// key has signed, or none.
func TestSigned(t *testing.T) {
	_, n, m, key := signed(t)
	other, foreign := signer(t, 1, 2), signer(t, 2, 1)
	if by, err := m.Signed(other.PublicKey(), key.PublicKey()); err != nil || by != key.PublicKey() {
		t.Errorf("%q, %v", by, err)
	}
	if _, err := m.Signed(other.PublicKey()); !errors.Is(err, proof.ErrUnknownKey) {
		t.Errorf("another key: %v", err)
	}
	n.sign = nil
	unsigned := n.take(t, Open(vfs.NewMem(), "dir"))
	if _, err := unsigned.Signed(key.PublicKey()); !errors.Is(err, proof.ErrUnsigned) {
		t.Errorf("not signed: %v", err)
	}
	note, err := foreign.Sign(n.statement().Statement())
	if err != nil {
		t.Fatal(err)
	}
	if m, err = readNote(note); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Signed(foreign.PublicKey()); !errors.Is(err, proof.ErrUnknownKey) || !strings.Contains(err.Error(), "another cluster") {
		t.Errorf("signed by another cluster: %v", err)
	}
}

// TestManifestDamaged: a manifest that was cut anywhere, or of which any byte is another, is found
// out without a key.
func TestManifestDamaged(t *testing.T) {
	r, n, m, _ := signed(t)
	path := r.path(m.Name + manifestSuffix)
	try := func(what, text string) {
		t.Helper()
		if err := writeFile(r.fs, path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Find(""); !errors.Is(err, ErrManifest) && !errors.Is(err, proof.ErrBackupFormat) {
			t.Fatalf("%s: %v", what, err)
		}
		if _, err := r.Find(m.Name); err == nil {
			t.Fatalf("%s: found by its name", what)
		}
		if list, err := r.List(); err != nil || len(list) != 1 || list[0].Err == nil {
			t.Fatalf("%s: listed as %v, %v", what, list, err)
		}
		if _, err := r.Prune(t.Context(), 1, nil); err == nil {
			t.Fatalf("%s: pruned", what)
		}
	}
	for i := range m.Note {
		try(fmt.Sprint("cut after ", i), m.Note[:i])
		try(fmt.Sprint("another byte at ", i), m.Note[:i]+string(m.Note[i]^1)+m.Note[i+1:])
	}
	try("a byte more", m.Note+"\n")
	// One that cannot be read may be the newest.
	n.next()
	n.take(t, r)
	if _, err := r.Find(""); !errors.Is(err, ErrManifest) {
		t.Errorf("the newest, where one cannot be read: %v", err)
	}
	// Under another name it is not found at all.
	if err := errors.Join(writeFile(r.fs, path, []byte(m.Note)), r.fs.Rename(path, r.path("mine.manifest"))); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Find("mine"); !errors.Is(err, ErrManifest) || !strings.Contains(err.Error(), m.Name) {
		t.Errorf("renamed: %v", err)
	}
}

// TestFilesDamaged: every file that was cut anywhere, of which any byte is another, that is longer
// or missing is found out, and is not copied.
func TestFilesDamaged(t *testing.T) {
	r, n, m, _ := signed(t)
	refused := func(what, name string, want error) {
		t.Helper()
		err := r.Verify(t.Context(), m, nil)
		if !errors.Is(err, want) || !strings.Contains(err.Error(), name) {
			t.Fatalf("%s: %v", what, err)
		}
		out := vfs.NewMem()
		if err := errors.Join(out.MkdirAll("out", 0o755), r.Copy(t.Context(), m, out, "out", nil)); !errors.Is(err, want) {
			t.Fatalf("%s: copied: %v", what, err)
		}
	}
	for _, f := range m.Files {
		path, _ := r.stored(f.SHA256)
		text := n.files[f.Name]
		for i := range text {
			for what, bad := range map[string]string{"cut after": text[:i], "another byte at": text[:i] + string(text[i]^1) + text[i+1:]} {
				if err := writeFile(r.fs, path, []byte(bad)); err != nil {
					t.Fatal(err)
				}
				refused(fmt.Sprint(f.Name, " ", what, " ", i), f.Name, ErrDamaged)
			}
		}
		if err := writeFile(r.fs, path, []byte(text+"x")); err != nil {
			t.Fatal(err)
		}
		refused(f.Name+" with a byte more", "", ErrDamaged)
		if err := r.fs.Remove(path); err != nil {
			t.Fatal(err)
		}
		refused(f.Name+" missing", "", ErrMissing)
		// The next backup has it sent again, or at least not left out, and repairs the first.
		n.take(t, r)
		if err := writeFile(r.fs, path, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	n.wantFiles(t, r, m)
	for _, f := range m.Files {
		path, _ := r.stored(f.SHA256)
		_ = r.fs.Remove(path)
	}
	if err := r.Verify(t.Context(), m, nil); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "and 1 further files") {
		t.Errorf("all missing: %v", err)
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Verify(stopped, m, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestNoRoom: nothing is copied where it would not fit.
func TestNoRoom(t *testing.T) {
	r, n := Open(vfs.Default, t.TempDir()), newFakeNode()
	m, out := n.take(t, r).Manifest, t.TempDir()
	if err := m.Room(vfs.Default, out); err != nil {
		t.Error(err)
	}
	m.Files[0].Size = 1 << 44
	for what, err := range map[string]error{"room": m.Room(vfs.Default, out), "copy": r.Copy(t.Context(), m, vfs.Default, out, nil)} {
		if !errors.Is(err, ErrNoRoom) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if names, err := vfs.Default.List(out); err != nil || len(names) > 0 {
		t.Errorf("copied: %q, %v", names, err)
	}
}

// TestPruneOrder: files go when it is sure that no manifest names them any more, also after a
// crash.
func TestPruneOrder(t *testing.T) {
	tap := &tap{}
	r, n := Open(tap.disk(vfs.NewMem()), "dir"), newFakeNode()
	for range 3 {
		n.take(t, r)
		n.next()
	}
	var manifests, files int
	removed, durable := 0, 0 // manifests
	tap.set(func(op errorfs.Op) error {
		switch {
		case op.Kind == errorfs.OpRemove && strings.HasSuffix(op.Path, manifestSuffix):
			removed++
			manifests++
		case op.Kind == errorfs.OpFileSync && op.Path == "dir":
			durable = removed
		case op.Kind == errorfs.OpRemove:
			files++
			if durable != 2 {
				t.Errorf("%s is removed while %d of 2 manifests are gone for good", op.Path, durable)
			}
		}
		return nil
	})
	_, err := r.Prune(t.Context(), 1, nil)
	tap.set(nil)
	if err != nil || manifests != 2 || files == 0 {
		t.Errorf("%d manifests, %d files, %v", manifests, files, err)
	}
}

// TestVerifyAll: of many backups each gets its own faults reported, and a file that several have is
// read once.
func TestVerifyAll(t *testing.T) {
	tap := &tap{}
	r, n := Open(tap.disk(vfs.NewMem()), "dir"), newFakeNode()
	var all []*Manifest
	distinct := map[string]bool{}
	for range 4 {
		all = append(all, n.take(t, r).Manifest)
		for _, f := range all[len(all)-1].Files {
			distinct[f.SHA256.String()] = true
		}
		n.next()
	}
	var mu sync.Mutex
	opened := map[string]int{}
	tap.set(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpOpen {
			mu.Lock()
			opened[op.Path]++
			mu.Unlock()
		}
		return nil
	})
	var last Progress
	if err := errors.Join(r.VerifyAll(t.Context(), all, func(p Progress) { last = p })...); err != nil {
		t.Error(err)
	}
	tap.set(nil)
	for path, times := range opened {
		if times != 1 {
			t.Errorf("%s is read %d times", path, times)
		}
	}
	if len(opened) != len(distinct) || last.Files != last.TotalFiles || last.Bytes != last.TotalBytes || int(last.Files) != len(distinct) {
		t.Errorf("%d of %d files are read, %+v", len(opened), len(distinct), last)
	}
	// Each file in turn: the backups that have it are damaged, and no other.
	for sum := range distinct {
		path := r.path(filesDir, sum[:2], sum)
		text, err := readFile(r.fs, path, 1<<20)
		if err == nil {
			err = writeFile(r.fs, path, append([]byte("x"), text...))
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, err := range r.VerifyAll(t.Context(), all, nil) {
			has := slices.ContainsFunc(all[i].Files, func(f proof.BackupFile) bool { return f.SHA256.String() == sum })
			if errors.Is(err, ErrDamaged) != has || err != nil != has {
				t.Errorf("file %s, which backup %d has: %t: %v", sum, i, has, err)
			}
		}
		if err := writeFile(r.fs, path, text); err != nil {
			t.Fatal(err)
		}
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	for i, err := range r.VerifyAll(stopped, all, nil) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("backup %d, cancelled: %v", i, err)
		}
	}
}

// TestPruneDamaged: while a backup that would be kept is damaged none goes, as that one may be
// whole.
func TestPruneDamaged(t *testing.T) {
	r, n := Open(vfs.NewMem(), "dir"), newFakeNode()
	var taken []*Manifest
	for range 3 {
		taken = append(taken, n.take(t, r).Manifest)
		n.next()
	}
	old := taken[0].Files[0] // a table that only the first has
	newest := taken[2].Files[slices.IndexFunc(taken[2].Files, func(f proof.BackupFile) bool { return f.Name == "MANIFEST-000001" })]
	damage := func(f proof.BackupFile) {
		t.Helper()
		path, _ := r.stored(f.SHA256)
		text, err := readFile(r.fs, path, 1<<20)
		if err == nil {
			text[0] ^= 1
			err = writeFile(r.fs, path, text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	before := listed(t, r)
	damage(newest)
	if p, err := r.Prune(t.Context(), 1, nil); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), taken[2].Name) || p != nil {
		t.Errorf("%+v, %v", p, err)
	}
	if names := listed(t, r); !slices.Equal(names, before) {
		t.Errorf("backups %q", names)
	}
	if err := errors.Join(r.VerifyAll(t.Context(), taken[:2], nil)...); err != nil {
		t.Errorf("of those that would have gone: %v", err)
	}
	// Where none would go, none is read.
	if p, err := r.Prune(t.Context(), 3, nil); err != nil || p.Kept != 3 {
		t.Errorf("%+v, %v", p, err)
	}
	damage(newest) // as it was
	damage(old)    // what goes may be damaged
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Prune(stopped, 1, nil); !errors.Is(err, context.Canceled) || len(listed(t, r)) != 3 {
		t.Errorf("cancelled: %v", err)
	}
	if p, err := r.Prune(t.Context(), 1, nil); err != nil || len(p.Backups) != 2 {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestPrune: what is kept stays whole, and nothing else stays.
func TestPrune(t *testing.T) {
	r, n := Open(vfs.NewMem(), "dir"), newFakeNode()
	var nodes []fakeNode
	var taken []*Manifest
	for range 5 {
		taken = append(taken, n.take(t, r).Manifest)
		nodes = append(nodes, *n)
		n.next()
	}
	if err := writeFile(r.fs, r.path(filesDir, taken[0].Files[0].SHA256.String()[:2], "README"), []byte("ours")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Prune(t.Context(), 0, nil); err == nil {
		t.Error("none is kept")
	}
	p, err := r.Prune(t.Context(), 2, nil)
	if err != nil || p.Kept != 2 || !slices.Equal(p.Backups, []string{taken[0].Name, taken[1].Name, taken[2].Name}) || p.Files == 0 || p.Bytes == 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	for i := 3; i < 5; i++ {
		nodes[i].wantFiles(t, r, taken[i])
	}
	wanted := map[string]bool{"README": true}
	for _, m := range taken[3:] {
		for _, f := range m.Files {
			wanted[f.SHA256.String()] = true
		}
	}
	left := map[string]bool{}
	subs, err := r.fs.List(r.path(filesDir))
	for _, sub := range subs {
		names, _ := r.fs.List(r.path(filesDir, sub))
		for _, name := range names {
			left[name] = true
		}
	}
	if err != nil || !maps.Equal(left, wanted) {
		t.Errorf("left are %v, %v; want %v", left, err, wanted)
	}
	if p, err := r.Prune(t.Context(), 2, nil); err != nil || len(p.Backups) > 0 || p.Files > 0 {
		t.Errorf("again: %+v, %v", p, err)
	}
}
