package members

import (
	"testing"

	runlogv1 "runlog/proto/runlog/v1"
)

// TestKnownFilesAreBounded proves D12: a caller cannot name any number of files.
func TestKnownFilesAreBounded(t *testing.T) {
	many := &runlogv1.BackupKnown{Origin: "x"}
	for range maxKnownFiles + 1 {
		many.Files = append(many.Files, &runlogv1.BackupFile{})
	}
	if err := checkKnown(&runlogv1.BackupRequest{Known: []*runlogv1.BackupKnown{many}}); err == nil {
		t.Error("any number of files is taken")
	}
}
