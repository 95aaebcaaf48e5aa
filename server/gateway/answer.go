package gateway

import (
	"compress/gzip"
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	"runlog/server/auth"
)

// gzipBytes is the smallest answer that is compressed.
const gzipBytes = 1024

// streamed reports whether the path is that of a server stream.
func streamed(rawPath string) bool {
	return strings.HasSuffix(rawPath, ":watch") || strings.HasSuffix(rawPath, ":read") || strings.HasSuffix(rawPath, ":export")
}

// answer is the ResponseWriter of an answer that is no stream. It compresses large answers if the
// client accepts that, and has no body after HEAD and with 304.
type answer struct {
	http.ResponseWriter
	gzip, bodiless bool
	begun          bool
	zip            *gzip.Writer // nil: not compressed
}

var zippers = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // The level is valid.
	return w
}}

// newAnswer returns the answer to a request. The caller closes it.
func newAnswer(w http.ResponseWriter, r *http.Request) *answer {
	w.Header().Add("Vary", "Accept-Encoding")
	return &answer{ResponseWriter: w, gzip: acceptsGzip(r.Header), bodiless: r.Method == http.MethodHead}
}

// acceptsGzip reports whether a client accepts gzip (RFC 9110).
func acceptsGzip(h http.Header) bool {
	for one := range strings.SplitSeq(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		name, params, _ := strings.Cut(one, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			_, q, weighted := strings.Cut(params, "=")
			weight, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
			return !weighted || err == nil && weight > 0
		}
	}
	return false
}

// WriteHeader begins the answer.
func (a *answer) WriteHeader(code int) {
	if code == http.StatusNotModified {
		a.bodiless = true
		a.Header().Del("Content-Type")
	}
	if code >= http.StatusOK {
		a.begun = true
	}
	a.ResponseWriter.WriteHeader(code)
}

// Write writes a part of the body. The first part of a large answer is large, because messages and
// pages are written at once.
func (a *answer) Write(b []byte) (int, error) {
	if a.gzip && !a.begun && !a.bodiless && len(b) >= gzipBytes && a.Header().Get("Content-Encoding") == "" {
		a.Header().Set("Content-Encoding", "gzip")
		a.Header().Del("Content-Length")
		a.zip = zippers.Get().(*gzip.Writer)
		a.zip.Reset(a.ResponseWriter)
	}
	a.begun = true
	switch {
	case a.bodiless:
		return len(b), nil
	case a.zip != nil:
		return a.zip.Write(b)
	default:
		return a.ResponseWriter.Write(b)
	}
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// close ends a compressed body. A client that is gone does not need the end.
func (a *answer) close() {
	if a.zip != nil {
		_ = a.zip.Close()
		a.zip.Reset(nil)
		zippers.Put(a.zip)
	}
}

// tagged is an answer with an entity tag.
type tagged interface {
	GetEtag() string
	GetNotModified() bool
}

// writeTag writes the entity tag of an answer, and 304 if the client has the same one. The client
// may keep the answer, and asks again each time.
func writeTag(_ context.Context, w http.ResponseWriter, m proto.Message) error {
	if t, ok := m.(tagged); ok && t.GetEtag() != "" {
		w.Header().Set("ETag", t.GetEtag())
		w.Header().Set("Cache-Control", "no-cache")
		if t.GetNotModified() {
			w.WriteHeader(http.StatusNotModified)
		}
	}
	return nil
}

// passTag hands the header If-None-Match to a method that has entity tags.
func passTag(r *http.Request) {
	tags := strings.Join(r.Header.Values("If-None-Match"), ",")
	path := r.URL.RawPath
	if tags == "" || !strings.HasPrefix(path, "/v1/runs/") || !strings.HasSuffix(path, "/snapshot") && !strings.HasSuffix(path, "/events") {
		return
	}
	q := r.URL.Query()
	if !q.Has("asOfSeq") && !q.Has("as_of_seq") && !q.Has("asOfTime") && !q.Has("as_of_time") {
		setParameter(r.URL, tags, "ifNoneMatch", "if_none_match")
	}
}

// takeTicket takes the ticket out of the address of a watch. It counts as a credential of the
// caller, in addition to those of the header.
func takeTicket(r *http.Request) {
	if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.RawPath, ":watch") {
		return
	}
	var kept []string
	for one := range strings.SplitSeq(r.URL.RawQuery, "&") {
		if ticket, ok := strings.CutPrefix(one, "ticket="); ok {
			r.Header["Authorization"] = append(r.Header["Authorization"], auth.TicketScheme+" "+ticket)
		} else {
			kept = append(kept, one)
		}
	}
	r.URL.RawQuery = strings.Join(kept, "&")
}

// setParameter sets a parameter of a query, in place of those with this name or the other one. What
// else the query has stays as it is, so that what is not well formed is still refused.
func setParameter(u *url.URL, value, name, other string) {
	kept := []string{name + "=" + url.QueryEscape(value)}
	for one := range strings.SplitSeq(u.RawQuery, "&") {
		key, _, _ := strings.Cut(one, "=")
		if key, err := url.QueryUnescape(key); one != "" && (err != nil || key != name && key != other) {
			kept = append(kept, one)
		}
	}
	u.RawQuery = strings.Join(kept, "&")
}
