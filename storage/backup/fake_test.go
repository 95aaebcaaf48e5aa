package backup

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/audit/proof"
	"runlog/proto/contract"
	runlogv1 "runlog/proto/runlog/v1"
)

// fakeNode sends backups as a node does.
type fakeNode struct {
	cluster  byte
	origin   string
	position uint64
	files    map[string]string
	sign     func(*proof.Statement) string // nil: not signed

	asked *runlogv1.BackupRequest // last
	piece int                     // bytes of a message
	// change, where not nil, changes the messages before they are sent; an error ends the stream.
	change func(i int, m *runlogv1.BackupResponse) error
}

func newFakeNode() *fakeNode {
	return &fakeNode{cluster: 1, origin: "n1.00000001/1", position: 10, piece: 5, files: map[string]string{
		"000004.sst": "the first table", "000006.sst": "another table, a little longer", "000007.blob": "b",
		"MANIFEST-000001": "some edits", "OPTIONS-000003": "", "marker.manifest.000001.MANIFEST-000001": "",
	}}
}

var errCut = errors.New("cut")

func (n *fakeNode) source(req *runlogv1.BackupRequest) iter.Seq2[*runlogv1.BackupResponse, error] {
	n.asked = req
	return func(yield func(*runlogv1.BackupResponse, error) bool) {
		for i, m := range n.messages(req) {
			if n.change != nil {
				if err := n.change(i, m); err != nil {
					yield(nil, err)
					return
				}
			}
			if !yield(m, nil) {
				return
			}
		}
	}
}

func (n *fakeNode) statement() *proof.Backup {
	b := &proof.Backup{Format: 3, Cluster: [16]byte{n.cluster}, Node: "n1", Origin: n.origin, Made: int64(n.position) * 1e9, Position: n.position, Term: 1, Events: 3}
	for _, name := range slices.Sorted(maps.Keys(n.files)) {
		b.Files = append(b.Files, proof.BackupFile{Name: name, Size: uint64(len(n.files[name])), SHA256: sha256.Sum256([]byte(n.files[name]))})
	}
	return b
}

// messages of a backup, without anything that the caller has.
func (n *fakeNode) messages(req *runlogv1.BackupRequest) (all []*runlogv1.BackupResponse) {
	known := map[string]contract.Digest{}
	for _, k := range req.GetKnown() {
		for _, f := range k.Files {
			if k.Origin == n.origin {
				known[f.Name] = contract.Digest(f.Sha256)
			}
		}
	}
	add := func(m *runlogv1.BackupResponse) { all = append(all, m) }
	b := n.statement()
	add(&runlogv1.BackupResponse{Part: &runlogv1.BackupResponse_Begin{Begin: &runlogv1.BackupBegin{
		Origin: n.origin, Files: uint64(len(b.Files)), Bytes: b.Bytes(), ClusterId: fmt.Sprintf("%x", b.Cluster)}}})
	for _, f := range b.Files {
		has := known[f.Name] == f.SHA256
		add(&runlogv1.BackupResponse{Part: &runlogv1.BackupResponse_File{File: &runlogv1.BackupFileBegin{Name: f.Name, Size: f.Size, Known: has}}})
		if !has {
			for piece := range slices.Chunk([]byte(n.files[f.Name]), n.piece) {
				add(&runlogv1.BackupResponse{Part: &runlogv1.BackupResponse_Data{Data: piece}})
			}
		}
		add(&runlogv1.BackupResponse{Part: &runlogv1.BackupResponse_End{End: &runlogv1.BackupFile{Name: f.Name, Size: f.Size, Sha256: f.SHA256[:]}}})
	}
	note := proof.Unsigned(b.Statement())
	if n.sign != nil {
		note = n.sign(b.Statement())
	}
	add(&runlogv1.BackupResponse{Part: &runlogv1.BackupResponse_Manifest{Manifest: note}})
	return all
}

// cutAfter ends streams after so many messages.
func (n *fakeNode) cutAfter(messages int) {
	n.change = func(i int, _ *runlogv1.BackupResponse) error {
		if i == messages {
			return errCut
		}
		return nil
	}
}

// next makes the node go on: a table more, another gone, and other edits.
func (n *fakeNode) next() {
	n.position++
	n.files = maps.Clone(n.files)
	delete(n.files, "000004.sst")
	n.files[fmt.Sprintf("%06d.sst", 100+n.position)] = fmt.Sprint("table of ", n.position)
	n.files["MANIFEST-000001"] += fmt.Sprint(" and ", n.position)
}

// take makes a backup that must succeed.
func (n *fakeNode) take(t testing.TB, r *Repository) *Taken {
	t.Helper()
	taken, err := r.Take(n.source, TakeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return taken
}

// wantFiles wants a copy of a backup to have the node's files.
func (n *fakeNode) wantFiles(t testing.TB, r *Repository, m *Manifest) {
	t.Helper()
	out := vfs.NewMem()
	if err := errors.Join(r.Verify(t.Context(), m, nil), out.MkdirAll("out", 0o755), r.Copy(t.Context(), m, out, "out", nil)); err != nil {
		t.Fatal(err)
	}
	names, err := out.List("out")
	slices.Sort(names)
	if err != nil || !slices.Equal(names, slices.Sorted(maps.Keys(n.files))) {
		t.Fatalf("files %q, %v", names, err)
	}
	for name, want := range n.files {
		if got, err := readFile(out, "out/"+name, 1<<20); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
}

// listed returns the names of the backups that are there, all of them readable.
func listed(t testing.TB, r *Repository) (names []string) {
	t.Helper()
	list, err := r.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if e.Err != nil {
			t.Fatal(e.Err)
		}
		names = append(names, e.Name)
	}
	return names
}
