package storagetest

import (
	"bytes"
	"encoding/json"
	"math/big"

	"runlog/proto/contract"
	"runlog/storage"
)

// sameMeaning is IDM-7 as the edge answers it: what a sparse event left out counts as what it
// inherits, and payloads and extensions are compared as JSON values.
func (m *Model) sameMeaning(run *storage.Run, a, b *contract.Event) bool {
	x, y := m.inherit(run, *a), m.inherit(run, *b)
	x.Absent, y.Absent = 0, 0
	if (x.Extensions == nil) != (y.Extensions == nil) || x.Extensions != nil && !sameJSON(decodeJSON(x.Extensions), decodeJSON(y.Extensions)) {
		return false
	}
	x.Extensions, y.Extensions = nil, nil
	return bytes.Equal(canonical(&x, true), canonical(&y, true)) && sameJSON(decodeJSON(x.Payload), decodeJSON(y.Payload))
}

func decodeJSON(text []byte) any {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return err
	}
	return v
}

// sameJSON compares numbers exactly, as fractions.
func sameJSON(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for name := range a {
			if v, ok := b[name]; !ok || !sameJSON(a[name], v) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !sameJSON(a[i], b[i]) {
				return false
			}
		}
		return true
	case json.Number:
		b, ok := b.(json.Number)
		if !ok {
			return false
		}
		x, _ := new(big.Rat).SetString(a.String())
		y, _ := new(big.Rat).SetString(b.String())
		return x.Cmp(y) == 0
	default:
		return a == b
	}
}
