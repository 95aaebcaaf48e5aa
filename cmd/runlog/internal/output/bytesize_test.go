package output

import "testing"

func TestByteSize(t *testing.T) {
	for text, want := range map[string]string{
		"0": "0", "1": "1", "1024": "1KiB", "1GiB": "1GiB", "512 MiB": "512MiB", " 3KiB ": "3KiB", "1536MiB": "1536MiB", "1048577": "1048577",
	} {
		var b ByteSize
		if err := b.Set(text); err != nil || b.String() != want {
			t.Errorf("%q is %s, error %v; want %s", text, b.String(), err, want)
		}
	}
	for _, text := range []string{"", "-1", "1GB", "1.5GiB", "GiB", "9999999999GiB", "0x10"} {
		var b ByteSize
		if err := b.Set(text); err == nil {
			t.Errorf("%q is taken as %s", text, b.String())
		}
	}
}
