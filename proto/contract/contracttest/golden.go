package contracttest

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Golden compares a message with the file that has what an earlier build wrote, a line a field.
// With update it adds the lines of new fields to the file. A line that changes is always a fault:
// stored data has the field as it was.
func Golden(t testing.TB, file string, message []byte, update bool) {
	t.Helper()
	lines := dump(t, message)
	text, err := os.ReadFile(file)
	if err != nil && !update {
		t.Fatalf("%v: make it with -update", err)
	}
	have := map[string]bool{}
	for _, line := range lines {
		have[line] = true
	}
	known := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	for _, line := range known {
		if line != "" && !have[line] {
			t.Errorf("%s: %s is written no more: a field that is stored keeps its number and its type, so add another in place of a change", file, line)
		}
	}
	if t.Failed() {
		return
	}
	if update {
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if strings.Join(lines, "\n") != strings.Join(known, "\n") {
		t.Errorf("%s has not all lines of\n%s\nadd those of new fields with -update", file, strings.Join(lines, "\n"))
	}
}

// dump returns the fields of a message, in their order: number, type on the wire and value.
func dump(t testing.TB, message []byte) (lines []string) {
	t.Helper()
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		size := protowire.ConsumeFieldValue(number, kind, message[n:])
		if size < 0 {
			t.Fatal(protowire.ParseError(size))
		}
		value := message[n : n+size]
		message = message[n+size:]
		switch kind {
		case protowire.VarintType:
			v, _ := protowire.ConsumeVarint(value)
			lines = append(lines, fmt.Sprintf("%d varint %d", number, v))
		case protowire.Fixed64Type:
			v, _ := protowire.ConsumeFixed64(value)
			lines = append(lines, fmt.Sprintf("%d fixed64 %d", number, v))
		case protowire.BytesType:
			b, _ := protowire.ConsumeBytes(value)
			if utf8.Valid(b) && !strings.ContainsFunc(string(b), func(r rune) bool { return r < ' ' }) {
				lines = append(lines, fmt.Sprintf("%d bytes %s", number, b))
			} else {
				lines = append(lines, fmt.Sprintf("%d bytes 0x%x", number, b))
			}
		default:
			t.Fatalf("field %d has the wire type %d", number, kind)
		}
	}
	return lines
}
