package record

import (
	"flag"
	"reflect"
	"testing"

	"runlog/proto/contract"
	"runlog/proto/contract/contracttest"
	recordv1 "runlog/proto/record/v1"
)

var update = flag.Bool("update", false, "add the lines of new fields to the golden file")

// TestStoredBodyAPP7: an event with something in every field is stored as earlier builds stored it,
// and what they stored is read the same.
func TestStoredBodyAPP7(t *testing.T) {
	want := contracttest.Whole()
	body, valid := appendBody(nil, want, &planName{"another", "1"})
	if !valid {
		t.Fatal("it has a text that is not UTF-8")
	}
	contracttest.Golden(t, "testdata/body.golden", body, *update)
	run := &recordv1.RunIdentity{RunId: want.RunID, Scope: &recordv1.Scope{TenantId: want.TenantID, ProjectId: want.ProjectID, EnvironmentId: want.EnvironmentID}}
	got, err := parseBody(body, run, &recordv1.Plan{}, true)
	if err != nil {
		t.Fatal(err)
	}
	// The row of a record has these, and not its body.
	want.PersistedAt, want.PayloadDigest, want.RecordDigest, want.ChainDigest = 0, contract.Digest{}, contract.Digest{}, contract.Digest{}
	if !reflect.DeepEqual(&got.Recorded, want) {
		t.Errorf("it is read as\n%+v, want\n%+v", got.Recorded, *want)
	}
}
