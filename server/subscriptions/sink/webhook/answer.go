package webhook

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"runlog/client/transport/httpretry"
	"runlog/server/subscriptions/sink/attempt"
)

const (
	maxAnswerBytes = 4 << 10 // read of an answer's body
	maxShownBytes  = 200     // shown of it
	maxRetryAfter  = 24 * time.Hour
)

// outcome reads an answer, and says what it means. An answer counts only when its body is read, or
// the first part of a large one: an endpoint that breaks off may not have stored the event.
func outcome(resp *http.Response) error {
	if resp.StatusCode < 200 {
		// The body is the connection, for another protocol. No deadline ends its reads.
		return fmt.Errorf("webhook: the endpoint has answered with HTTP %d, which nothing asked for", resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	status := resp.StatusCode
	switch {
	case err != nil:
		return fmt.Errorf("webhook: the answer with HTTP %d breaks off: %s: check the endpoint", status, attempt.Printable(err.Error(), maxErrorBytes))
	case 200 <= status && status < 300:
		return nil
	case 300 <= status && status < 400:
		return redirectError(resp)
	}
	err = fmt.Errorf("webhook: the endpoint has answered with HTTP %d%s", status, shown(body))
	switch status {
	case http.StatusGone:
		return &attempt.GoneError{Err: err}
	case http.StatusRequestEntityTooLarge:
		return &attempt.PermanentError{Err: err}
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if after, ok := httpretry.After(resp.Header.Get("Retry-After"), time.Now()); ok {
			return &attempt.BusyError{After: min(after, maxRetryAfter), Err: err}
		}
	}
	return err
}

func shown(body []byte) string {
	if text := attempt.Printable(string(body), maxShownBytes); text != "" {
		return ": " + text
	}
	return ""
}

// redirectError names the host that a redirect leads to, without the rest of its address.
func redirectError(resp *http.Response) error {
	to := "an address that cannot be read"
	if u, err := resp.Location(); err == nil && u.Host != "" {
		to = attempt.Printable(u.Host, maxShownBytes)
	}
	return fmt.Errorf("webhook: the endpoint has answered with HTTP %d, a redirect to %s, which is refused: subscribe with the address that it leads to", resp.StatusCode, to)
}
