package peer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestIssuedCertificatesAreTaken shows that what is issued is what LoadTLS wants, for names that
// need encoding too, and that keys are for their owner alone.
func TestIssuedCertificatesAreTaken(t *testing.T) {
	for _, name := range []string{"n1", "node-1.eu.example", "Köln 3", "a/b?c#d%e", "..x"} {
		dir := t.TempDir()
		if err := MakeCA(dir, noon); err != nil {
			t.Fatal(err)
		}
		ends, err := IssueNode(dir, name, noon, 30*day)
		if err != nil || !ends.Equal(noon.Add(30*day)) {
			t.Fatalf("%q: ends %v, %v", name, ends, err)
		}
		ca, caKey := CAFiles(dir)
		cert, key := NodeFiles(dir, name)
		if filepath.Dir(cert) != dir {
			t.Errorf("%q leads out of the directory: %s", name, cert)
		}
		loaded, err := LoadTLS(ca, cert, key, clockAt(noon).read)
		if err != nil {
			t.Fatal(err)
		}
		if loaded.NodeID() != name {
			t.Errorf("%q became %q", name, loaded.NodeID())
		}
		if k, ok := loaded.files.Last().own.PrivateKey.(*ecdsa.PrivateKey); !ok || k.Curve != elliptic.P256() {
			t.Errorf("the key is a %T", loaded.files.Last().own.PrivateKey)
		}
		for _, path := range []string{caKey, key} {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v", path, info.Mode(), err)
			}
			if text, _ := os.ReadFile(path); !strings.HasPrefix(string(text), "-----BEGIN PRIVATE KEY-----\n") {
				t.Errorf("%s is not PKCS #8", path)
			}
		}
	}
}

// TestNothingIsOverwritten shows that neither an authority nor a certificate goes, nor half of one.
func TestNothingIsOverwritten(t *testing.T) {
	dir := newAuthority(t).dir
	if _, err := IssueNode(dir, "n1", noon, day); err != nil {
		t.Fatal(err)
	}
	cert, key := NodeFiles(dir, "n2")
	if err := os.WriteFile(cert, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := contents(t, dir)
	if err := MakeCA(dir, noon); !errors.Is(err, os.ErrExist) {
		t.Error(err)
	}
	for _, name := range []string{"n1", "n2"} {
		if _, err := IssueNode(dir, name, noon, day); !errors.Is(err, os.ErrExist) {
			t.Error(err)
		}
	}
	after := contents(t, dir)
	if len(before) != len(after) {
		t.Errorf("there are %d files now, and were %d", len(after), len(before))
	}
	for name, text := range before {
		if after[name] != text {
			t.Errorf("%s changed", name)
		}
	}
	if _, err := os.Stat(key); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a key without its certificate was left: %v", err)
	}
}

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]string)
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = string(text)
	}
	return out
}

// TestWhatCannotBeIssued shows the limits: names, time, and an authority that is there and not
// expired.
func TestWhatCannotBeIssued(t *testing.T) {
	dir := newAuthority(t).dir
	for _, name := range []string{"", "ca", ".", "..", "n\n", strings.Repeat("n", maxNodeID+1)} {
		if _, err := IssueNode(dir, name, noon, day); err == nil {
			t.Errorf("%q got a certificate", name)
		}
	}
	if _, err := IssueNode(dir, "n1", noon, 0); err == nil {
		t.Error("one for no time was issued")
	}
	if _, err := IssueNode(t.TempDir(), "n1", noon, day); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without an authority: %v", err)
	}
	late := noon.Add(caValid)
	if _, err := IssueNode(dir, "n1", late, day); err == nil {
		t.Error("an expired authority issued one")
	}
	ends, err := IssueNode(dir, "n1", noon, 2*caValid)
	if want := noon.Add(caValid - 30*day); err != nil || !ends.Equal(want) {
		t.Errorf("it ends at %v, want the authority's end %v: %v", ends, want.Format(time.RFC3339), err)
	}
}
