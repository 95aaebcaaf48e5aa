package record_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"runlog/storage/internal/record"
)

// TestRowsAreOfOneMoment: what Find shows is as of its first question, also of a row that was asked
// for and was not there; after Close it is as of the next one.
func TestRowsAreOfOneMoment(t *testing.T) {
	t.Parallel()
	db, err := pebble.Open("", &pebble.Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	rows := record.Rows{Reader: db}
	find := func(key, want string) {
		t.Helper()
		if row, err := rows.Find([]byte(key)); err != nil || string(row) != want || (row == nil) != (want == "") {
			t.Errorf("row %s is %q, %v; want %q", key, row, err, want)
		}
	}
	set := func(key string) {
		t.Helper()
		if err := db.Set([]byte(key), []byte("1"), pebble.NoSync); err != nil {
			t.Fatal(err)
		}
	}
	set("a")
	for _, key := range []string{"b", "b", "ba"} {
		find(key, "")
	}
	find("a", "1")
	set("b")
	set("ba")
	find("ba", "")
	find("b", "")
	if err := rows.Close(); err != nil {
		t.Error(err)
	}
	find("b", "1")
	find("ba", "1")
	find("c", "")
	if err := rows.Close(); err != nil {
		t.Error(err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
