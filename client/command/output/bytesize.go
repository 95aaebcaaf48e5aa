package output

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// ByteSize is the value of a flag in bytes, such as 512MiB or 2GB; a number without a unit is
// bytes.
type ByteSize int64

type byteUnit struct {
	name string
	size int64
}

// binaryUnits are powers of 1,024, and decimalUnits of 1,000 (IEC 80000-13). The largest is first.
var (
	binaryUnits  = []byteUnit{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}
	decimalUnits = []byteUnit{{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1}}
	byteUnits    = slices.Concat(binaryUnits, decimalUnits)
)

// Set takes the value from the command line. The case of a unit does not matter.
func (b *ByteSize) Set(text string) error {
	number, unit := strings.TrimSpace(text), int64(1)
	for _, u := range byteUnits {
		if at := len(number) - len(u.name); at > 0 && strings.EqualFold(number[at:], u.name) {
			number, unit = strings.TrimSpace(number[:at]), u.size
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return fmt.Errorf("%q is not a size; want a whole number and KiB, MiB, GiB or TiB (powers of 1,024), or KB, MB, GB or TB (powers of 1,000), such as 512MiB", text)
	}
	*b = ByteSize(n * unit)
	return nil
}

// String returns the size in the unit that makes it shortest.
func (b *ByteSize) String() string {
	n := int64(*b)
	text := strconv.FormatInt(n, 10)
	for _, u := range byteUnits {
		if n < u.size || n%u.size != 0 || u.size == 1 {
			continue
		}
		if short := strconv.FormatInt(n/u.size, 10) + u.name; len(short) < len(text) || u.size == 1<<10 && len(short) == len(text) {
			text = short
		}
	}
	return text
}

// Type names the value in the help.
func (b *ByteSize) Type() string { return "size" }
