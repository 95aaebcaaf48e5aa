// Package signingkey has what commands share that check signatures: the flag of public keys, and
// what to do about a signature that no key vouches for.
package signingkey

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"runlog/audit/proof"
	"runlog/client/command/output"
)

// maxKeyFile bounds a file of public keys, in bytes.
const maxKeyFile = 64 << 10

// keyList is the value of the flag --key: public keys, each on the command line or in a file.
type keyList []string

// Flag adds the flag --key to a command. The command gets the keys themselves, also those that
// are in files.
func Flag(cmd *cobra.Command, keys *[]string) {
	cmd.Flags().Var((*keyList)(keys), "key",
		"public key of the cluster, name+id+key, or a file with one or more of them; may be repeated: the signature of one of them is required")
}

// String returns the keys.
func (l *keyList) String() string { return strings.Join(*l, ",") }

// Set takes a key or the name of a file. If a text is a key, no file is looked for.
func (l *keyList) Set(text string) error {
	_, err := proof.KeyID(text)
	if err == nil {
		*l = append(*l, text)
		return nil
	}
	keys, err := readKeys(text)
	*l = append(*l, keys...)
	return err
}

// Type names the value in the help.
func (l *keyList) Type() string { return "key|file" }

// keyForm tells what a public key looks like.
const keyForm = `want name+id+key as "runlog audit keys" lists them, such as ` +
	"runlog/0191a3c8f6b27d4e8f1a2b3c4d5e6f70+783390d8+AQOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4, or a file with such a line"

// readKeys returns the public keys in a file: one a line, as it is or as "runlog audit keys -o
// json" prints it. Empty lines and those that begin with # do not count.
func readKeys(path string) (keys []string, err error) {
	file, err := os.Open(path)
	if err != nil {
		hint := ""
		if strings.HasPrefix(path, "runlog/") && strings.Count(path, "+") == 1 {
			hint = "; it is a name and an id, and the key itself is missing"
		}
		return nil, fmt.Errorf("neither a public key nor a file that can be read%s; %s", hint, keyForm)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, errors.New("it is a directory; " + keyForm)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxKeyFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxKeyFile {
		return nil, fmt.Errorf("the file is larger than %s, and no list of public keys; %s", output.Size(maxKeyFile), keyForm)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		var listed struct{ PublicKey string }
		if json.Unmarshal([]byte(line), &listed) == nil {
			line = listed.PublicKey
		}
		if _, err := proof.KeyID(line); err != nil {
			return nil, fmt.Errorf("line %d of the file is no public key; \"runlog audit keys -o json\" writes lines that are taken; %s", n, keyForm)
		}
		keys = append(keys, line)
	}
	if len(keys) == 0 {
		return nil, errors.New("the file has no public key; " + keyForm)
	}
	return keys, nil
}

// Missing tells why something is not signed, and what to do.
const Missing = "the node that answered does not have the cluster's key (AUDIT_KEY_MISSING); name another node with --server, bring back a node that has the key, " +
	"or make a new one with \"runlog audit rotate-key\"; --allow-unsigned accepts an unsigned result"

// Hint tells what to do if none of the named keys vouches for a signature.
func Hint(err error) string {
	switch {
	case errors.Is(err, proof.ErrUnknownKey):
		return "this alone is no sign of a forgery: after a rotation the cluster signs with its new key; get the key with that id from the operator of the cluster " +
			"(\"runlog audit keys\" lists all) and name it with --key; do not trust a signature whose key the operator does not know"
	case errors.Is(err, proof.ErrUnsigned):
		return "anyone may have made it, or removed its signature; a cluster that lacks its key (AUDIT_KEY_MISSING) leaves it unsigned, too: ask the operator of the cluster"
	default:
		return "the content was changed: do not trust it"
	}
}
