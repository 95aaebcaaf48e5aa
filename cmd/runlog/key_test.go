package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestKeysThatAreNone: what is given for a key is told from one, with what it may be instead.
func TestKeysThatAreNone(t *testing.T) {
	key := fakeSigner(1).PublicKey()
	file := filepath.Join(t.TempDir(), "cluster.pub")
	if err := os.WriteFile(file, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		key:                     "",
		"":                      "want name+id+key",
		"x":                     "such as runlog/",
		file:                    `it is a file: name what is in it, --key "$(cat FILE)"`,
		key[:48]:                "the key itself is missing",
		key + "\n":              "want name+id+key",
		strings.ToUpper(key):    "want name+id+key",
		key[:len(key)-1] + "!":  "want name+id+key",
		"other/" + key[7:] + "": "is no public key",
	} {
		err := checkKeys([]string{key, text})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
