package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"runlog/audit/proof"
	runlogv1 "runlog/proto/runlog/v1"
)

// backupOf is a backup of three files, which are no database.
func backupOf(position uint64, known bool) []*runlogv1.BackupResponse {
	b := proof.Backup{
		Format: 9, Cluster: [16]byte{0x6f, 0x1c}, Node: "n1", Origin: "n1.00112231/1", Version: "1.4.0", Made: seconds(float64(position)).AsTime().UnixNano(),
		Position: position, Term: 7, CompleteThrough: seconds(3).AsTime().UnixNano(), Runs: 12, Events: 3400,
	}
	all := []*runlogv1.BackupResponse{{Part: &runlogv1.BackupResponse_Begin{Begin: &runlogv1.BackupBegin{
		Origin: b.Origin, Files: 3, Bytes: 40_000, ClusterId: fmt.Sprintf("%x", b.Cluster)}}}}
	for _, f := range [][2]string{{"000004.sst", strings.Repeat("table", 6000)}, {"MANIFEST-000001", fmt.Sprint("edits", position)}, {"OPTIONS-000003", "options"}} {
		name, data := f[0], f[1]
		b.Files = append(b.Files, proof.BackupFile{Name: name, Size: uint64(len(data)), SHA256: sha256.Sum256([]byte(data))})
		sum := sha256.Sum256([]byte(data))
		known := known && strings.HasSuffix(name, ".sst")
		all = append(all, &runlogv1.BackupResponse{Part: &runlogv1.BackupResponse_File{File: &runlogv1.BackupFileBegin{Name: name, Size: uint64(len(data)), Known: known}}})
		if !known {
			all = append(all, &runlogv1.BackupResponse{Part: &runlogv1.BackupResponse_Data{Data: []byte(data)}})
		}
		all = append(all, &runlogv1.BackupResponse{Part: &runlogv1.BackupResponse_End{End: &runlogv1.BackupFile{Name: name, Size: uint64(len(data)), Sha256: sum[:]}}})
	}
	return append(all, &runlogv1.BackupResponse{Part: &runlogv1.BackupResponse_Manifest{Manifest: proof.Unsigned(b.Statement())}})
}

// Backup sends what the test put in.
func (f *fakeCluster) Backup(_ *runlogv1.BackupRequest, stream grpc.ServerStreamingServer[runlogv1.BackupResponse]) error {
	f.mu.Lock()
	next := f.backups[0]
	f.backups = f.backups[1:]
	f.mu.Unlock()
	for _, m := range next {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	return f.refuse
}

var backupTook = regexp.MustCompile(`in [0-9.µm]+s \([0-9.]+ [KMG]?i?B/s\)|"seconds":[0-9.e-]+`)

// TestGoldenBackup shows what operators see of backups.
func TestGoldenBackup(t *testing.T) {
	dir := t.TempDir()
	repo := filepath.Join(dir, "backups")
	fake := &fakeServer{}
	fake.backups = [][]*runlogv1.BackupResponse{backupOf(10, false), backupOf(11, true), backupOf(12, true)[:4], backupOf(13, false)}
	key, err := proof.NewSigner([16]byte{0x6f, 0x1c}, [32]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	do := func(args ...string) {
		t.Helper()
		s := invocation{args: args}
		s.do(t.Context(), t, fake)
		text.WriteString(strings.ReplaceAll(backupTook.ReplaceAllString(s.text(), "<time>"), dir, "DIR"))
	}
	damage := func(pattern string) {
		t.Helper()
		names, err := filepath.Glob(filepath.Join(repo, pattern))
		if err != nil || len(names) != 1 {
			t.Fatalf("%s: %q, %v", pattern, names, err)
		}
		data, err := os.ReadFile(names[0])
		if err == nil {
			data[len(data)/2] ^= 1
			err = os.WriteFile(names[0], data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	do("backup", "list", repo)
	do("backup", repo)
	do("backup", repo, "-o", "json", "--allow-unsigned")
	do("backup", repo, "--timeout", "1s") // is cut
	do("backup")
	do("backup", "list", repo)
	do("backup", "list", repo, "-o", "json")
	do("backup", "verify", repo)
	do("backup", "verify", repo, "20260211T103010", "-o", "json")
	do("backup", "verify", repo, "2025")
	do("backup", "verify", repo, "--key", "key")
	do("backup", "verify", repo, "--key", key.PublicKey())
	do("backup", "prune", repo)
	do("backup", "prune", repo, "--keep", "1")
	do("backup", "prune", repo, "--keep", "1", "-o", "json")
	do("backup", "prune", filepath.Join(dir, "none"), "--keep", "1")
	do("restore", filepath.Join(repo, "none"), "--data-dir", filepath.Join(dir, "new"))
	do("restore", repo, "--data-dir", repo)
	do("restore", repo, "--data-dir", filepath.Join(dir, "new"), "--node-id", "a b")
	do("restore", repo, "--data-dir", filepath.Join(dir, "new"), "--key", key.PublicKey())
	damage("files/*/dcb853*")
	do("backup", "verify", repo)
	do("backup", repo, "--full")
	do("backup", "verify", repo, "--all")
	do("backup", "verify", repo, "--all", "-o", "json")
	do("backup", "verify", repo, "--all", "2026")
	do("backup", "verify", repo, "--all", "--key", key.PublicKey())
	do("backup", "verify", filepath.Join(dir, "none"), "--all")
	damage("files/*/dcb853*")
	do("backup", "verify", repo, "--all")
	do("backup", "prune", repo, "--keep", "1")
	do("restore", repo, "--data-dir", filepath.Join(dir, "new"))
	damage("*-11-*.manifest")
	do("backup", "list", repo)
	do("backup", "prune", repo, "--keep", "1")
	do("restore", repo, "--data-dir", filepath.Join(dir, "new"))
	golden(t, "backup", text.String())
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Errorf("left behind: %v, %v", names, err)
	}
}
