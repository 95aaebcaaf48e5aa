package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"runlog/engine/secret"
)

// Defaults of Options.
const (
	DefaultTimeout   = 15 * time.Second
	DefaultAttempts  = 4
	DefaultMaxAnswer = 32 << 20
)

// maxMessage bounds the text of an error, in bytes.
const maxMessage = 500

// The wait between two tries.
const minBackoff, maxBackoff = 50 * time.Millisecond, 2 * time.Second

// Options of a Client. URL is required.
type Options struct {
	// URL is the address of Conductor, without /api, such as http://conductor:8080.
	URL string
	// Authorization is the value of the header X-Authorization. The zero Value: no header.
	Authorization secret.Value
	// Credential returns the value of the header X-Authorization for the next try, such as from a
	// file that changes. nil: Authorization.
	Credential func() string
	// Timeout bounds one try. It must be longer than a poll waits. 0: DefaultTimeout.
	Timeout time.Duration
	// Attempts bounds the tries of one call. 0: DefaultAttempts.
	Attempts int
	// MaxAnswer bounds an answer, in bytes. 0: DefaultMaxAnswer.
	MaxAnswer int64
	// Transport carries the requests. nil: http.DefaultTransport.
	Transport http.RoundTripper
}

// EnsureDefaults returns o with defaults in place of zero values.
func (o Options) EnsureDefaults() Options {
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Attempts == 0 {
		o.Attempts = DefaultAttempts
	}
	if o.MaxAnswer == 0 {
		o.MaxAnswer = DefaultMaxAnswer
	}
	return o
}

// Validate reports every fault of o, which must have its defaults.
func (o Options) Validate() error {
	var faults []error
	u, err := url.Parse(o.URL)
	switch {
	case err != nil: // Its text may have a password.
		faults = append(faults, errors.New("conductor: URL is no URL: write http://host:port"))
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		faults = append(faults, errors.New("conductor: URL has no http:// or https:// with a host"))
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		faults = append(faults, errors.New("conductor: URL has a user, a query or a fragment: use Authorization for credentials"))
	}
	if o.Timeout < 0 {
		faults = append(faults, fmt.Errorf("conductor: Timeout is %v, want more than 0", o.Timeout))
	}
	if o.Attempts < 0 {
		faults = append(faults, fmt.Errorf("conductor: Attempts is %d, want more than 0", o.Attempts))
	}
	if o.MaxAnswer < 0 {
		faults = append(faults, fmt.Errorf("conductor: MaxAnswer is %d, want more than 0", o.MaxAnswer))
	}
	if strings.ContainsFunc(o.Authorization.Reveal(), func(r rune) bool { return r < ' ' || r == 0x7f }) {
		faults = append(faults, errors.New("conductor: Authorization has a control character: a header cannot carry it"))
	}
	return errors.Join(faults...)
}

// Client calls one Conductor. It is safe for concurrent use.
type Client struct {
	opts Options
	base string
	http http.Client
}

// New returns a Client. It calls nothing.
func New(opts Options) (*Client, error) {
	opts = opts.EnsureDefaults()
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	return &Client{opts: opts, base: strings.TrimRight(opts.URL, "/"), http: http.Client{
		Transport:     opts.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// call is a request to be made.
type call struct {
	op, method, path string
	query            url.Values
	body             any // JSON; nil: none
	once             bool
}

// do makes a call, and returns the body of its answer.
func (c *Client) do(ctx context.Context, r call) ([]byte, error) {
	var body []byte
	if r.body != nil {
		var err error
		if body, err = json.Marshal(r.body); err != nil {
			return nil, &Error{Op: r.op, Message: err.Error(), Status: http.StatusBadRequest}
		}
	}
	for attempt, backoff := 1, minBackoff; ; attempt++ {
		answer, failure := c.try(ctx, r, body)
		switch {
		case failure == nil:
			return answer, nil
		case r.once || attempt >= c.opts.Attempts || !failure.Temporary() || ctx.Err() != nil:
			return nil, failure
		}
		if !sleep(ctx, backoff/2+rand.N(backoff/2)) {
			return nil, failure
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// try makes one request.
func (c *Client) try(ctx context.Context, r call, body []byte) ([]byte, *Error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	target := c.base + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, bytes.NewReader(body))
	if err != nil {
		return nil, &Error{Op: r.op, Message: c.clean(err.Error()), Status: http.StatusBadRequest}
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if value := c.credential(); value != "" {
		req.Header.Set("X-Authorization", value)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, c.lost(r.op, err)
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, c.opts.MaxAnswer+1))
	switch {
	case err != nil:
		return nil, c.lost(r.op, err)
	case int64(len(answer)) > c.opts.MaxAnswer:
		return nil, &Error{Op: r.op, Status: http.StatusRequestEntityTooLarge,
			Message: fmt.Sprintf("the answer has more than %d bytes", c.opts.MaxAnswer)}
	case res.StatusCode < 200 || res.StatusCode > 299:
		return nil, &Error{Op: r.op, Status: res.StatusCode, Message: c.clean(message(answer))}
	}
	return answer, nil
}

func (c *Client) credential() string {
	if c.opts.Credential != nil {
		return c.opts.Credential()
	}
	return c.opts.Authorization.Reveal()
}

// lost is a call without an answer.
func (c *Client) lost(op string, err error) *Error {
	e := &Error{Op: op, Message: c.clean(err.Error())}
	// The text of another error may have what the message must not have.
	for _, known := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, known) {
			e.cause = known
		}
	}
	return e
}

// message returns the text of an ErrorResponse, or of any other answer.
func message(answer []byte) string {
	var known struct {
		Message          string `json:"message"`
		ValidationErrors []struct{ Path, Message string }
	}
	if json.Unmarshal(answer, &known) != nil || known.Message == "" {
		return string(answer)
	}
	for _, v := range known.ValidationErrors {
		known.Message += " " + v.Path + ": " + v.Message + "."
	}
	return known.Message
}

// clean makes the text of an error short and free of the credential.
func (c *Client) clean(text string) string {
	if value := c.credential(); value != "" {
		text = strings.ReplaceAll(text, value, c.opts.Authorization.String())
	}
	if text = strings.TrimSpace(strings.ToValidUTF8(text, "\uFFFD")); text == "" {
		return "no text"
	}
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + "…"
	}
	return text
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
