package certfile

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// issue returns a certificate of its own with its key, as PEM.
func issue(t *testing.T, name string, authority bool) (cert, key []byte) {
	t.Helper()
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: authority, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, signer.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(signer)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

// pair is a certificate with its key in files, and a clock.
type pair struct {
	t         *testing.T
	cert, key string
	now       time.Time
	reads     int
}

func newPair(t *testing.T) *pair {
	dir := t.TempDir()
	return &pair{t: t, cert: filepath.Join(dir, "tls.crt"), key: filepath.Join(dir, "tls.key"), now: time.Unix(1000, 0)}
}

// replace puts a text in place of a file by a rename.
func (p *pair) replace(path string, text []byte) {
	p.t.Helper()
	next := path + ".next"
	if err := errors.Join(os.WriteFile(next, text, 0o600), os.Rename(next, path)); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pair) load() *Files[tls.Certificate] {
	p.t.Helper()
	f, err := Load(Options[tls.Certificate]{Paths: []string{p.cert, p.key}, Clock: func() time.Time { return p.now },
		Read: func(*tls.Certificate) (*tls.Certificate, error) {
			p.reads++
			c, err := tls.LoadX509KeyPair(p.cert, p.key)
			return &c, err
		}})
	if err != nil {
		p.t.Fatal(err)
	}
	return f
}

// shows wants the certificate with a name, a second later, and an error if the files are unusable.
func (p *pair) shows(f *Files[tls.Certificate], name string, usable bool) {
	p.t.Helper()
	p.now = p.now.Add(checkEvery)
	c, err := f.Current()
	if got := c.Leaf.Subject.CommonName; got != name || (err == nil) != usable || f.Last() != c {
		p.t.Errorf("%s, %v; want %s, usable %t", got, err, name, usable)
	}
}

// TestReload: a pair that is renamed into place is read at the next check (SEC-1). Between the
// renames the files are no pair, and the old value stays; so it does while a file is half written,
// or gone.
func TestReload(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	cert, key := issue(t, "first", false)
	p.replace(p.cert, cert)
	p.replace(p.key, key)
	f := p.load()
	p.shows(f, "first", true)
	if p.reads != 1 {
		t.Errorf("%d reads of files that have not changed", p.reads)
	}

	cert, key = issue(t, "second", false)
	p.replace(p.cert, cert)
	p.shows(f, "first", false)
	p.replace(p.key, key)
	p.shows(f, "second", true)

	cert, key = issue(t, "third", false)
	if err := os.WriteFile(p.cert, cert[:len(cert)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	p.shows(f, "second", false)
	if err := os.Remove(p.cert); err != nil {
		t.Fatal(err)
	}
	p.shows(f, "second", false)
	p.replace(p.cert, cert)
	p.replace(p.key, key)
	p.shows(f, "third", true)

	reads := p.reads
	p.now = p.now.Add(checkEvery - 1)
	if _, err := f.Current(); err != nil || p.reads != reads {
		t.Errorf("%v, %d reads within a second of a check", err, p.reads-reads)
	}
}

// TestReloadOfALink: both files change at once when the link to their directory does, as that of a
// secret in Kubernetes.
func TestReloadOfALink(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	root := filepath.Dir(p.cert)
	link := filepath.Join(root, "current")
	at := func(name string) {
		t.Helper()
		dir := filepath.Join(root, name)
		cert, key := issue(t, name, false)
		err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "tls.crt"), cert, 0o600),
			os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600), os.Symlink(dir, link+".next"), os.Rename(link+".next", link))
		if err != nil {
			t.Fatal(err)
		}
	}
	at("first")
	p.cert, p.key = filepath.Join(link, "tls.crt"), filepath.Join(link, "tls.key")
	f := p.load()
	at("second")
	p.shows(f, "second", true)
}

// TestReadHoldsNobodyUp: while a caller reads the files again, the others get the earlier value and
// do not wait for the disk. A reload that cannot be used is logged once, by what the files hold.
func TestReadHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	path, now := filepath.Join(t.TempDir(), "token"), time.Unix(1000, 0)
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		now = now.Add(checkEvery)
	}
	write("1")
	begun, let := make(chan bool), make(chan bool)
	f, err := Load(Options[string]{Paths: []string{path}, What: "the token", Clock: func() time.Time { return now }, Read: func(before *string) (*string, error) {
		if before != nil {
			begun <- true
			<-let
		}
		text, err := os.ReadFile(path)
		value := string(text)
		if value == "" {
			err = errors.New("empty")
		}
		return &value, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	write("22")
	read := make(chan string)
	go func() {
		value, _ := f.Current()
		read <- *value
	}()
	<-begun
	now = now.Add(time.Hour)
	if value, err := f.Current(); *value != "1" || err != nil {
		t.Errorf("got %s, %v during the read", *value, err)
	}
	let <- true
	if got := <-read; got != "22" || *f.Last() != "22" {
		t.Errorf("got %s and %s after the read", got, *f.Last())
	}
	write("")
	go func() {
		for range begun {
			let <- true
		}
	}()
	var log bytes.Buffer
	for range 3 {
		now = now.Add(checkEvery)
		if got := *f.Kept(slog.New(slog.NewTextHandler(&log, nil))); got != "22" {
			t.Errorf("got %s with an empty file", got)
		}
	}
	close(begun)
	if text := log.String(); strings.Count(text, "cannot reload the token; keeping the old ones") != 1 {
		t.Errorf("the log has %q", text)
	}
}

// TestLoadFails: a node does not start with files that cannot be used.
func TestLoadFails(t *testing.T) {
	t.Parallel()
	read := func(*int) (*int, error) { return nil, errors.New("unusable") }
	path := filepath.Join(t.TempDir(), "tls.crt")
	if _, err := Load(Options[int]{Paths: []string{path}, Read: read}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that does not exist: %v", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(Options[int]{Paths: []string{path}, Read: read}); err == nil || err.Error() != "unusable" {
		t.Errorf("a file that cannot be used: %v", err)
	}
}

// TestAuthorities: only certificates of authorities count, and several do.
func TestAuthorities(t *testing.T) {
	t.Parallel()
	first, key := issue(t, "first", true)
	second, _ := issue(t, "second", true)
	leaf, _ := issue(t, "leaf", false)
	all := append(append(append([]byte("# text\n"), key...), first...), second...)
	roots, err := Authorities(all)
	if err != nil {
		t.Fatal(err)
	}
	want := x509.NewCertPool()
	want.AppendCertsFromPEM(append(first, second...))
	if !roots.Equal(want) {
		t.Error("not the two authorities")
	}
	for says, text := range map[string][]byte{
		"holds no certificate":            key,
		`"CN=leaf"`:                       append(all, leaf...),
		"certificate that cannot be read": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}),
	} {
		if _, err := Authorities(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want %q", err, says)
		}
	}
}
