package session

import (
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"runlog/audit/proof"
	"runlog/cmd/runlog/internal/output"
)

// KeyFlag adds the flag --key to a command.
func KeyFlag(cmd *cobra.Command, keys *[]string) {
	cmd.Flags().StringArrayVar(keys, "key", nil, "public key of the cluster, name+id+key; may be repeated: the signature of one of them is required")
}

// CheckKeys reports a key that is not a public key, and shows what one looks like.
func CheckKeys(keys []string) error {
	for _, key := range keys {
		if _, err := proof.KeyID(key); err == nil {
			continue
		}
		hint := ""
		if info, err := os.Stat(key); err == nil && info.Mode().IsRegular() {
			hint = "; it is a file: pass its content, --key \"$(cat FILE)\""
		} else if strings.HasPrefix(key, "runlog/") && strings.Count(key, "+") == 1 {
			hint = "; it is a name and an id, and the key itself is missing"
		}
		return output.UsageError("--key %q is no public key%s; want name+id+key as \"runlog audit keys\" lists them, such as "+
			"runlog/0191a3c8f6b27d4e8f1a2b3c4d5e6f70+783390d8+AQOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4", key, hint)
	}
	return nil
}

// KeyMissing tells why something is not signed, and what to do.
const KeyMissing = "the node that answered does not have the cluster's key (AUDIT_KEY_MISSING); name another node with --server, bring back a node that has the key, " +
	"or make a new one with \"runlog audit rotate-key\"; --allow-unsigned accepts an unsigned result"

// SignatureHint tells what to do if none of the named keys vouches for a signature.
func SignatureHint(err error) string {
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
