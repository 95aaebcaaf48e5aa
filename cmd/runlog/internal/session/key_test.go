package session

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"runlog/audit/proof"
)

// TestKeysThatAreNone: what is given for a key is told from one, with what it may be instead.
func TestKeysThatAreNone(t *testing.T) {
	signer, err := proof.NewSigner([16]byte{0x01, 0x91, 0xa3, 0xc8}, [32]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	key := signer.PublicKey()
	file := filepath.Join(t.TempDir(), "cluster.pub")
	if err := os.WriteFile(file, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		key:                     "",
		"":                      "want name+id+key",
		"x":                     "such as runlog/",
		file:                    `it is a file: pass its content, --key "$(cat FILE)"`,
		key[:48]:                "the key itself is missing",
		key + "\n":              "want name+id+key",
		strings.ToUpper(key):    "want name+id+key",
		key[:len(key)-1] + "!":  "want name+id+key",
		"other/" + key[7:] + "": "is no public key",
	} {
		err := CheckKeys([]string{key, text})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
