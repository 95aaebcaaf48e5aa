package nats

import (
	"strings"

	"runlog/storage"
)

// placeholders are what a subject may contain, and what replaces them.
var placeholders = map[string]func(*storage.Record) string{
	"{tenant}": func(r *storage.Record) string { return r.TenantID },
	"{type}":   func(r *storage.Record) string { return r.Type },
	"{run}":    func(r *storage.Record) string { return r.RunID },
}

// subject is a parsed subject with placeholders: texts as they are, and functions.
type subject []part

// part is one of both.
type part struct {
	text  string
	value func(*storage.Record) string
}

// parseSubject splits a subject that subjectFault finds no fault in.
func parseSubject(s string) subject {
	var parts subject
	for s != "" {
		begin := strings.IndexByte(s, '{')
		if begin < 0 {
			return append(parts, part{text: s})
		}
		end := begin + strings.IndexByte(s[begin:], '}') + 1
		parts = append(parts, part{text: s[:begin]}, part{value: placeholders[s[begin:end]]})
		s = s[end:]
	}
	return parts
}

// of returns the subject of a record.
func (s subject) of(r *storage.Record) string {
	var out []byte
	for _, p := range s {
		if p.value != nil {
			out = appendToken(out, p.value(r))
		} else {
			out = append(out, p.text...)
		}
	}
	return string(out)
}

// appendToken appends any text as one token of a subject, or as a part of one.
func appendToken(dst []byte, s string) []byte {
	const digits = "0123456789ABCDEF"
	if s == "" {
		return append(dst, '%')
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
			dst = append(dst, c)
		default:
			dst = append(dst, '%', digits[c>>4], digits[c&15])
		}
	}
	return dst
}
