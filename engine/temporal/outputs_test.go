package temporal

import (
	"encoding/json"
	"testing"
)

// TestOutputsAreBoundedENG3: a worker keeps the newest outputs, up to limits of number and bytes,
// and never one in place of another.
func TestOutputsAreBoundedENG3(t *testing.T) {
	t.Parallel()
	var o outputs
	o.put(place{"run", 1}, json.RawMessage(`1`))
	o.put(place{"run", 1}, json.RawMessage(`2`))
	if got, ok := o.get(place{"run", 1}); !ok || string(got) != `1` {
		t.Errorf("got %s, %t", got, ok)
	}
	if _, ok := o.get(place{"other", 1}); ok {
		t.Error("another run has the output")
	}
	for i := range uint64(maxOutputs) {
		o.put(place{"run", 2 + i}, nil)
	}
	if _, ok := o.get(place{"run", 1}); ok || o.oldest.Len() != maxOutputs || len(o.kept) != maxOutputs || o.bytes != 0 {
		t.Errorf("%d outputs of %d bytes are kept", o.oldest.Len(), o.bytes)
	}
	o.put(place{"big", 1}, make(json.RawMessage, maxOutputsBytes))
	o.put(place{"big", 2}, make(json.RawMessage, 1))
	if _, ok := o.get(place{"big", 1}); ok || o.bytes != 1 || len(o.kept) != 1 {
		t.Errorf("%d outputs of %d bytes are kept", len(o.kept), o.bytes)
	}
}
