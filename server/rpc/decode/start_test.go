package decode

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	runlogv1 "runlog/proto/runlog/v1"
)

// TestEventsOfReleaseENV8: a release takes events as an append does. Their payloads stay the text
// that was sent.
func TestEventsOfReleaseENV8(t *testing.T) {
	t.Parallel()
	const payload = `{"n": 1.0,  "b":2}`
	var m runlogv1.ReleaseLeaseRequest
	body := `{"fence": "2", "outcome": "STARTED", "engineRunRef": "e/1", "events": [{"eventType": "RunStarted", "payload": ` + payload + `}]}`
	if fault := JSON([]byte(body), &m); fault != nil {
		t.Fatal(fault)
	}
	if m.GetFence() != 2 || m.GetEngineRunRef() != "e/1" || len(m.Events) != 1 || string(m.Events[0].GetPayloadJson()) != payload {
		t.Errorf("%v", &m)
	}
	got := lines(JSON([]byte(`{"events": [{"evenType": "RunStarted"}]}`), &m))
	if !strings.HasPrefix(got, "events[0].evenType: is not a field") {
		t.Errorf("a misspelt field: %s", got)
	}
}

// TestBombsOfReleaseQUE7: too many events of a release are refused before they are made, in proto
// and in JSON.
func TestBombsOfReleaseQUE7(t *testing.T) {
	t.Parallel()
	const want = "events: has 40000 events: send at most 10"
	if _, fault := checkWire(&runlogv1.ReleaseLeaseRequest{}, repeated(fieldStart, nil, 40_000)); lines(fault) != want {
		t.Errorf("in proto: %s", lines(fault))
	}
	var m runlogv1.ReleaseLeaseRequest
	fault := JSON([]byte(`{"events": [{}`+strings.Repeat(",{}", 39_999)+`]}`), &m)
	if lines(fault) != want || len(m.Events) > 0 {
		t.Errorf("in JSON: %s", lines(fault))
	}
	values := field(fieldStart, structOf(nil, 4<<20))
	if _, fault := checkWire(&m, values); fault == nil || !strings.Contains(fault.Message, "JSON values") {
		t.Errorf("values: %v", fault)
	}
	few := wireOf(t, &runlogv1.ReleaseLeaseRequest{RunId: "run", Error: strings.Repeat("x", smallWire), Events: request(10, 10).Events})
	if _, fault := checkWire(&m, few); fault != nil || proto.Unmarshal(few, &m) != nil {
		t.Errorf("ten events: %v", fault)
	}
}
