package httpcall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"runlog/client/transport/httpretry"
	"runlog/client/transport/publicaddress"
	"runlog/engine/executor"
	"runlog/engine/secret"
)

// The codes of errors. The code of an answer 404 is HTTP_404.
const (
	CodeNetwork  = "HTTP_NETWORK"
	CodeRedirect = "HTTP_REDIRECT_REFUSED"
	CodeTooLarge = "HTTP_RESPONSE_TOO_LARGE"
	CodeAddress  = "HTTP_ADDRESS_REFUSED"
	codeStatus   = "HTTP_"
)

const (
	maxRedirects    = 5
	maxRetryAfter   = time.Hour
	maxSnippet      = 300 // bytes of an answer that an error repeats
	defaultResponse = 1 << 20
)

// ClientOptions of a Client.
type ClientOptions struct {
	// Transport sends the requests. Nil: one with limits of its own.
	Transport http.RoundTripper
	// Control sees each address before the transport with limits of its own connects to it, as
	// publicaddress.Control does. That transport then uses no proxy, which would resolve the names
	// itself. Nil: any address, by the proxies of the environment.
	Control func(network, address string, _ syscall.RawConn) error
	// Dial connects the transport with limits of its own. Nil: the network of this machine.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// MaxResponse bounds the body of an answer, in bytes, by default 1 MiB.
	MaxResponse int64
	// Now is time.Now unless it is set.
	Now func() time.Time
}

// Client calls servers. It is safe for concurrent use.
type Client struct {
	client *http.Client
	max    int64
	now    func() time.Time
}

// NewClient returns a Client.
func NewClient(o ClientOptions) *Client {
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: 10 * time.Second, Control: o.Control}).DialContext
	}
	proxy := http.ProxyFromEnvironment
	if o.Control != nil {
		proxy = nil
	}
	if o.Transport == nil {
		o.Transport = &http.Transport{
			Proxy: proxy, DialContext: o.Dial,
			TLSHandshakeTimeout: 10 * time.Second, MaxResponseHeaderBytes: 64 << 10, ForceAttemptHTTP2: true,
			MaxIdleConns: 100, IdleConnTimeout: time.Minute,
		}
	}
	if o.MaxResponse <= 0 {
		o.MaxResponse = defaultResponse
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Client{&http.Client{Transport: o.Transport, CheckRedirect: checkRedirect}, o.MaxResponse, o.Now}
}

// Close closes idle connections.
func (c *Client) Close() { c.client.CloseIdleConnections() }

var errRedirect = errors.New("the server redirects to another one, or too often")

func checkRedirect(to *http.Request, via []*http.Request) error {
	if from := via[0].URL; to.URL.Host != from.Host || to.URL.Scheme != from.Scheme || len(via) > maxRedirects {
		return errRedirect
	}
	return nil
}

// Request is what a server is asked.
type Request struct {
	Method string
	URL    string
	Header http.Header
	Body   []byte
	// Redactor has the secrets that an error must not repeat from an answer, not even in part.
	Redactor *secret.Redactor
}

// Response is an answer of 2xx.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// Do sends a request. Its error is an *executor.Error.
func (c *Client) Do(ctx context.Context, r Request) (Response, error) {
	u, err := url.Parse(r.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return Response{}, executor.Fail(executor.CodeInputsInvalid, "the url is none of http or https, or has a user: correct the plan")
	}
	request, err := http.NewRequestWithContext(ctx, r.Method, r.URL, bytes.NewReader(r.Body))
	if err != nil {
		return Response{}, executor.Fail(executor.CodeInputsInvalid, "cannot make the request: %v: correct the plan", err)
	}
	request.Header = r.Header
	answer, err := c.client.Do(request)
	if err != nil {
		return Response{}, unanswered(u, err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, c.max+1))
	switch {
	case int64(len(body)) > c.max:
		return Response{}, executor.Fail(CodeTooLarge, "the answer %d of %s has more than %d bytes", answer.StatusCode, u.Host, c.max)
	case err != nil:
		return Response{}, unanswered(u, err)
	case answer.StatusCode < 200 || answer.StatusCode > 299:
		return Response{}, c.refused(u, answer, r.Redactor.Bytes(body))
	}
	return Response{answer.StatusCode, answer.Header, body}, nil
}

// unanswered is the error of a request without a whole answer.
func unanswered(u *url.URL, err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // It would repeat the whole URL.
	}
	if errors.Is(err, errRedirect) {
		return executor.Fail(CodeRedirect, "%s: %v: name the last one in the plan", u.Host, err)
	}
	if refused, ok := errors.AsType[*publicaddress.Error](err); ok {
		return executor.Fail(CodeAddress, "%s: %v: use a public one, or let the operator of the worker allow its network", u.Host, refused)
	}
	return executor.Retry(CodeNetwork, "cannot get an answer from %s: %v", u.Host, err)
}

// refused is the error of an answer other than 2xx.
func (c *Client) refused(u *url.URL, answer *http.Response, body []byte) error {
	text := strings.Join(strings.Fields(string(body[:min(len(body), maxSnippet)])), " ")
	fault := executor.Fail(fmt.Sprint(codeStatus, answer.StatusCode), "%s answers %d: %s", u.Host, answer.StatusCode, text)
	switch answer.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		fault.Kind = executor.Retryable
		after, _ := httpretry.After(answer.Header.Get("Retry-After"), c.now())
		fault.RetryAfter = min(after, maxRetryAfter)
	}
	return fault
}
