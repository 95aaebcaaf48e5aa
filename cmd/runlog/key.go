package main

import (
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"runlog/audit/proof"
)

func keyFlag(cmd *cobra.Command, keys *[]string) {
	cmd.Flags().StringArrayVar(keys, "key", nil, "public key of the cluster, name+id+key; may be repeated, and one of them must have signed")
}

// checkKeys wants public keys, and says what one looks like.
func checkKeys(keys []string) error {
	for _, key := range keys {
		if _, err := proof.KeyID(key); err == nil {
			continue
		}
		hint := ""
		if info, err := os.Stat(key); err == nil && info.Mode().IsRegular() {
			hint = "; it is a file: name what is in it, --key \"$(cat FILE)\""
		} else if strings.HasPrefix(key, "runlog/") && strings.Count(key, "+") == 1 {
			hint = "; it is a name and an id, and the key itself is missing"
		}
		return usageError("--key %q is no public key%s; want name+id+key as \"runlog audit keys\" lists them, such as "+
			"runlog/0191a3c8f6b27d4e8f1a2b3c4d5e6f70+783390d8+AQOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4", key, hint)
	}
	return nil
}

// keyMissing tells why something is not signed, and what to do.
const keyMissing = "the node that answered does not have the cluster's key (AUDIT_KEY_MISSING); name another node with --server, bring one back that has it, " +
	"or make a new key with \"runlog audit rotate-key\"; --allow-unsigned takes what nobody has signed"

// signatureHint tells what to do where none of the keys that were named vouches for something.
func signatureHint(err error) string {
	switch {
	case errors.Is(err, proof.ErrUnknownKey):
		return "that alone is no forgery, since a cluster that has rotated its key signs with the new one: get the key with that id from whoever runs the cluster " +
			"(\"runlog audit keys\" lists all), and name it with --key; do not trust what was signed with a key that they do not know"
	case errors.Is(err, proof.ErrUnsigned):
		return "anybody can have made it, or cut its signature off; a cluster that lacks its key (AUDIT_KEY_MISSING) makes it so, too: ask whoever runs it"
	default:
		return "it was changed: do not trust it"
	}
}
