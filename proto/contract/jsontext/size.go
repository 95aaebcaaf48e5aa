package jsontext

import (
	"bytes"
	"math"
	"strconv"
)

// wholeDoubles is the number below which a double holds every whole number.
const wholeDoubles = 1 << 53

// Size reads a count, such as one of bytes, from a JSON value. It may be a number in any of the
// spellings that a double takes on its way through HTTP, such as 1e+06 (ENV-8), or a decimal
// string, as proto-JSON writes 64-bit integers. ok is false for all else, and for what int64 cannot
// hold. exact is false if the number was read as a double and may have been rounded.
func Size(raw []byte) (n int64, exact, ok bool) {
	digits := string(raw)
	if len(raw) > 0 && raw[0] == '"' {
		digits = Text(raw)
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	exact = err == nil
	if err != nil && isNumber(raw) {
		n, err = parseWhole(digits)
		exact = n < wholeDoubles
	}
	return n, exact, err == nil && n >= 0
}

// isNumber tells whether a value is spelled with the characters of JSON numbers alone: strconv
// knows more.
func isNumber(raw []byte) bool {
	return len(raw) > 0 && len(bytes.TrimLeft(raw, "0123456789+-.eE")) == 0
}

// parseWhole reads a double that is a whole number in the range of int64.
func parseWhole(digits string) (int64, error) {
	float, err := strconv.ParseFloat(digits, 64)
	if err == nil && (float != math.Trunc(float) || math.Abs(float) >= 1<<63) {
		err = strconv.ErrRange
	}
	return int64(float), err
}
