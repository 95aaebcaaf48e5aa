package cluster

import (
	"fmt"

	"runlog/raft"
	"runlog/storage"
)

// Remedy adds to an error about a damaged data directory what the operator can do without losing
// anything; other errors stay as they are. voters counts those of the cluster; 0: unknown.
//
// The directory may hold the only copy of acknowledged events, so a remedy never empties it. A file
// from an older copy may make a node vote twice, so a member of several is replaced.
func Remedy(err error, dir, nodeID string, voters int) error {
	if !storage.Damaged(err) {
		return err
	}
	const copied = "put the file back from a copy that was made after the node had stopped"
	const restore = "restore the newest backup into another --data-dir (runlog restore)"
	replace := fmt.Sprintf("replace node %s: runlog cluster remove %s, then start it with --join and another, new --data-dir", nodeID, nodeID)
	if nodeID == "" {
		replace = "replace this node (runlog cluster remove), with another, new --data-dir"
	}
	const seen = "runlog cluster status at another member shows a leader"
	switch {
	case voters == 1:
		return fmt.Errorf("%w; keep %s as it is: this is the only voter; %s, or %s", err, dir, copied, restore)
	case voters > 1:
		return fmt.Errorf("%w; keep %s as it is until another node has taken its place: if %s, %s; if not, %s", err, dir, seen, replace, copied)
	default:
		return fmt.Errorf("%w; keep %s as it is: if %s, %s; if this is the only voter or the others are lost, %s, or %s", err, dir, seen, replace, copied, restore)
	}
}

// Voters counts the voters that a store knows; 0: none, or it cannot be read.
func Voters(store *storage.Store) (voters int) {
	m, err := store.Membership()
	if err != nil || m.Index == 0 {
		return 0
	}
	members, _ := raft.DecodeMembers(m) // None, if they cannot be decoded.
	for _, member := range members {
		if member.Voter {
			voters++
		}
	}
	return voters
}
