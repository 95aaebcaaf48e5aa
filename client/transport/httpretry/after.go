// Package httpretry reads how long a server asks its client to wait.
package httpretry

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// longest is the longest time.Duration of whole seconds.
const longest = math.MaxInt64 / time.Second * time.Second

// After reads a Retry-After header: seconds, or a date (RFC 9110, 10.2.3). It returns false if the
// header is neither. A date in the past is 0. Seconds that no time.Duration holds are the longest
// Duration: a server that asks for much time has not asked for none.
func After(header string, now time.Time) (time.Duration, bool) {
	if header != "" && strings.Trim(header, "0123456789") == "" {
		seconds, err := strconv.ParseUint(header, 10, 64)
		if err != nil || seconds > math.MaxInt64/uint64(time.Second) {
			return longest, true
		}
		return time.Duration(seconds) * time.Second, true
	}
	date, err := http.ParseTime(header)
	if err != nil {
		return 0, false
	}
	return max(date.Sub(now), 0), true
}
