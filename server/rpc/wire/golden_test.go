package wire

import (
	"flag"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"

	"runlog/proto/contract"
	"runlog/proto/contract/contracttest"
	runlogv1 "runlog/proto/runlog/v1"
	"runlog/storage"
)

var update = flag.Bool("update", false, "add the lines of new fields to the golden file")

// TestSentRecordAPP7: an event with something in every field is sent as earlier builds sent it, and
// what they sent is read the same.
func TestSentRecordAPP7(t *testing.T) {
	want := contracttest.Whole()
	data, err := AppendRecord(nil, &storage.Record{Recorded: *want}, runlogv1.PayloadForm_JSON)
	if err != nil {
		t.Fatal(err)
	}
	contracttest.Golden(t, "testdata/record.golden", data, *update)
	m, got := &runlogv1.EventRecord{}, &contract.Recorded{}
	if err := proto.Unmarshal(data, m); err != nil {
		t.Fatal(err)
	}
	if !got.Take(m) || !reflect.DeepEqual(got, want) {
		t.Errorf("it is read as\n%+v, want\n%+v", *got, *want)
	}
}
