package output

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ByteSize is the value of a flag in bytes, such as 512MiB; a number without a unit is bytes.
type ByteSize int64

var byteUnits = []struct {
	name string
	size int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// Set takes the value from the command line.
func (b *ByteSize) Set(text string) error {
	number, unit := strings.TrimSpace(text), int64(1)
	for _, u := range byteUnits {
		if rest, ok := strings.CutSuffix(number, u.name); ok {
			number, unit = strings.TrimSpace(rest), u.size
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return fmt.Errorf("%q is not a size; want a whole number and KiB, MiB or GiB, such as 512MiB", text)
	}
	*b = ByteSize(n * unit)
	return nil
}

// String returns the size in the largest unit that divides it.
func (b *ByteSize) String() string {
	for _, u := range byteUnits {
		if n := int64(*b); n >= u.size && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(*b), 10)
}

// Type names the value in the help.
func (b *ByteSize) Type() string { return "size" }
