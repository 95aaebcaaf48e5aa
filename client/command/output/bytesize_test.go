package output

import "testing"

func TestByteSize(t *testing.T) {
	for text, want := range map[string]string{
		"0": "0", "1": "1", "1024": "1KiB", "1GiB": "1GiB", "512 MiB": "512MiB", " 3KiB ": "3KiB", "1536MiB": "1536MiB", "1048577": "1048577",
		"2GB": "2GB", "10TiB": "10TiB", "1TB": "1TB", "1000000000": "1GB", "5mb": "5MB", "7 kib": "7KiB", "65536": "64KiB", "12B": "12",
	} {
		var b ByteSize
		if err := b.Set(text); err != nil || b.String() != want {
			t.Errorf("%q is %s, error %v; want %s", text, b.String(), err, want)
		}
	}
	for text, want := range map[string]int64{"2GB": 2_000_000_000, "2GiB": 2 << 30, "10TiB": 10 << 40, "10TB": 10e12, "3kB": 3000} {
		var b ByteSize
		if err := b.Set(text); err != nil || int64(b) != want {
			t.Errorf("%q is %d, error %v; want %d", text, int64(b), err, want)
		}
	}
	for _, text := range []string{"", "-1", "2G", "2Gb/s", "1.5GiB", "GiB", "B", "9999999999GiB", "9999999TiB", "0x10", "1,000", "2 G B"} {
		var b ByteSize
		if err := b.Set(text); err == nil {
			t.Errorf("%q is taken as %s", text, b.String())
		}
	}
}
