package signingkey

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"runlog/audit/proof"
)

// publicKey returns the public key of a cluster.
func publicKey(t *testing.T, seed byte) string {
	t.Helper()
	signer, err := proof.NewSigner([16]byte{0x01, 0x91, 0xa3, 0xc8}, [32]byte{seed})
	if err != nil {
		t.Fatal(err)
	}
	return signer.PublicKey()
}

// TestKeys: a key is given as it is or by the name of a file, and what is neither is told from one,
// with what it may be instead.
func TestKeys(t *testing.T) {
	key, other := publicKey(t, 1), publicKey(t, 2)
	dir := t.TempDir()
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for text, test := range map[string]struct {
		want  []string
		fault string
	}{
		key:                         {want: []string{key}},
		file("one", key):            {want: []string{key}},
		file("line", key+"\n"):      {want: []string{key}},
		file("windows", key+"\r\n"): {want: []string{key}},
		file("two", "# the cluster in Bern\n\n"+key+"\n  "+other+"  \n"): {want: []string{key, other}},

		file("json", `{"number":"1","publicKey":"`+key+`","keyId":"0"}`+"\n"): {want: []string{key}},
		file("more", `{"publicKey":""}`):                                      {fault: "line 1 of the file is no public key"},
		file("null", "null\n"):                                                {fault: "-o json"},

		"":                               {fault: "want name+id+key"},
		"x":                              {fault: "neither a public key nor a file"},
		key[:48]:                         {fault: "the key itself is missing"},
		key + "\n":                       {fault: "want name+id+key"},
		strings.ToUpper(key):             {fault: "want name+id+key"},
		key[:len(key)-1] + "!":           {fault: "want name+id+key"},
		"other/" + key[7:]:               {fault: "neither a public key nor a file"},
		dir:                              {fault: "it is a directory"},
		filepath.Join(dir, "none"):       {fault: "neither a public key nor a file"},
		file("empty", "# nothing\n\n"):   {fault: "the file has no public key"},
		file("cut", key[:60]+"\n"):       {fault: "line 1 of the file is no public key"},
		file("both", key+"\n"+key+"x"):   {fault: "line 2 of the file is no public key"},
		file("table", "1  yes  "+key):    {fault: "line 1 of the file is no public key"},
		file("image", "\x89PNG\r\n\x00"): {fault: "is no public key"},
		file("large", strings.Repeat(key+"\n", 1000)): {fault: "larger than 64.0 KiB"},
	} {
		var got []string
		err := (*keyList)(&got).Set(text)
		if test.fault == "" && (err != nil || !slices.Equal(got, test.want)) {
			t.Errorf("%q: %q, %v; want %q", text, got, err, test.want)
		}
		if test.fault != "" && (err == nil || !strings.Contains(err.Error(), test.fault) || len(got) > 0) {
			t.Errorf("%q: %q, %v; want %q", text, got, err, test.fault)
		}
	}
}
