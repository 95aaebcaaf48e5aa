package checkpoint

import (
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/storage"
	"runlog/storage/storagetest"
)

const (
	goodSeed = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	keyText  = `{"cluster":"CLUSTER","keys":[{"number":1,"seed":"` + goodSeed + `"}]}`
)

func ringOf(t testing.TB, text string) *keyring {
	t.Helper()
	r := &keyring{disk: vfs.NewMem(), path: "key", cluster: storagetest.Cluster}
	if err := storage.ReplaceFile(r.disk, r.path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return r
}

func clusterText() string {
	r := &keyring{disk: vfs.NewMem(), path: "key", cluster: storagetest.Cluster}
	_ = r.replaceLocked(nil)
	text, _ := storage.ReadFile(r.disk, r.path, maxKeyFile)
	return strings.Split(string(text), `"`)[3]
}

// TestHalfAKeyFile: if one key of a file is unreadable, none is used.
func TestHalfAKeyFile(t *testing.T) {
	text := strings.ReplaceAll(keyText, "CLUSTER", clusterText())
	if r := ringOf(t, text); r.open() != nil || len(r.held) != 1 {
		t.Fatalf("%d keys of a good file", len(r.held))
	}
	r := ringOf(t, strings.Replace(text, "]}", `,{"number":2,"seed":"AAEC"}]}`, 1))
	if err := r.open(); err == nil || len(r.held) != 0 {
		t.Errorf("%d keys, %v", len(r.held), err)
	}
}

// FuzzKeyFile: a file is refused, and no key is held; or a rewritten file holds the same keys.
func FuzzKeyFile(f *testing.F) {
	good := strings.ReplaceAll(keyText, "CLUSTER", clusterText())
	f.Add(good)
	f.Add(strings.Replace(good, "]}", `,{"number":2,"seed":"`+goodSeed+`"}]}`, 1))
	f.Add(strings.Replace(good, `"number":1`, `"number":18446744073709551615`, 1))
	f.Add(strings.Replace(good, goodSeed, "AAEC", 1))
	f.Add(strings.Replace(good, `}]`, `,"members":["n1.1","n2.2"]}]`, 1))
	f.Add(strings.Replace(good, `"keys":[`, `"keys":[null,`, 1))
	f.Add("{}")
	f.Fuzz(func(t *testing.T, text string) {
		r := ringOf(t, text)
		if err := r.open(); err != nil {
			if len(r.held) > 0 {
				t.Fatalf("%d keys of a file that was refused: %v", len(r.held), err)
			}
			return
		}
		again := &keyring{disk: r.disk, path: r.path, cluster: r.cluster}
		if err := r.replaceLocked(r.held); err != nil {
			t.Fatal(err)
		}
		if err := again.open(); err != nil || !slices.EqualFunc(again.held, r.held, func(a, b heldKey) bool { return a.is(b) && slices.Equal(a.members, b.members) }) {
			t.Errorf("%d keys became %d: %v", len(r.held), len(again.held), err)
		}
	})
}
