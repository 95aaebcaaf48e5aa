package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// HTTPOptions are the options of http and https.
type HTTPOptions struct {
	// Transport makes the requests. nil: one with timeouts, that takes a proxy from the
	// environment.
	Transport http.RoundTripper
}

const (
	maxRedirects   = 5
	maxHeaderBytes = 64 << 10
	dialTimeout    = 10 * time.Second
	headerTimeout  = 30 * time.Second
)

// httpStore downloads.
type httpStore struct{ client *http.Client }

var (
	errRedirects = fmt.Errorf("more than %d redirects: use the address of the blob itself", maxRedirects)
	errRedirect  = errors.New("a redirect leads to a URI that is refused: use the address of the blob itself")
	errDowngrade = errors.New("https redirects to http: use the address of the last redirect if it is trusted")
)

// newHTTP returns the store. check refuses what redirects must not lead to.
func newHTTP(o HTTPOptions, check func(*url.URL) error) *httpStore {
	if o.Transport == nil {
		o.Transport = &http.Transport{
			Proxy:       http.ProxyFromEnvironment,
			DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext,
			// The digest of a plan is that of the bytes that its reference describes.
			DisableCompression:     true,
			ForceAttemptHTTP2:      true,
			TLSHandshakeTimeout:    dialTimeout,
			ResponseHeaderTimeout:  headerTimeout,
			MaxResponseHeaderBytes: maxHeaderBytes,
			IdleConnTimeout:        headerTimeout,
			MaxIdleConns:           16,
		}
	}
	redirect := func(req *http.Request, via []*http.Request) error {
		req.Header.Del("Referer") // It has the query of the last address, which may be signed.
		u, why := parse(req.URL.String())
		switch {
		case len(via) > maxRedirects:
			return errRedirects
		case via[len(via)-1].URL.Scheme == "https" && req.URL.Scheme == "http":
			return errDowngrade
		case why != "" || u.Scheme != "http" && u.Scheme != "https":
			return errRedirect
		}
		return check(u)
	}
	return &httpStore{&http.Client{Transport: locations{o.Transport}, CheckRedirect: redirect}}
}

// locations refuses redirects to what is no address. The error of http.Client would repeat it, and
// so what may be a signature.
type locations struct{ http.RoundTripper }

// RoundTrip makes a request.
func (l locations) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if _, err := resp.Location(); err != nil && !errors.Is(err, http.ErrNoLocation) {
		resp.Body.Close()
		return nil, errRedirect
	}
	return resp, nil
}

// Open asks for a blob with GET.
func (s *httpStore) Open(ctx context.Context, uri string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, uri, http.NoBody)
	if err != nil {
		return nil, invalid("open", uri, "it is no URI of HTTP: write https://host/path")
	}
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, requestError(ctx, uri, err)
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, &Error{Op: "open", URI: Shown(uri), Kind: statusKind(resp.StatusCode), Err: fmt.Errorf("HTTP %d", resp.StatusCode)}
	}
	return &body{resp.Body, ctx, uri, resp.ContentLength}, nil
}

// requestError leaves the text of a url.Error out, which has the whole address.
func requestError(ctx context.Context, uri string, err error) error {
	kind := Transient
	switch {
	case errors.Is(err, errNotAllowed), errors.Is(err, errDowngrade), errors.Is(err, errRedirects), errors.Is(err, errRedirect):
		kind = Denied
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return &Error{Op: "open", URI: Shown(uri), Kind: kind, Err: err}
}

// statusKind returns what an answer other than 200 means.
func statusKind(status int) Kind {
	switch {
	case status == http.StatusNotFound, status == http.StatusGone:
		return NotFound
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return Denied
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests, status >= 500:
		return Transient
	}
	return Invalid
}

// Put is not part of what plain web servers do.
func (*httpStore) Put(_ context.Context, uri string, _ io.Reader, _ int64) error {
	return &Error{Op: "put", URI: Shown(uri), Kind: Unsupported, Err: errors.New("http and https are read only: use another scheme")}
}
