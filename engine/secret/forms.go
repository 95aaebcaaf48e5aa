package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Form is how a text has a secret.
type Form string

// The forms that a Redactor knows.
const (
	Raw    Form = "raw"
	Line   Form = "line"
	Base64 Form = "base64"
	Hex    Form = "hex"
	URL    Form = "url"
	JSON   Form = "json"
)

const (
	// minLine is the shortest line of a value with several that is a form of its own.
	minLine = 16
	// minInner is the shortest base64 text that is found within a longer one.
	minInner = 8
)

// formsOf returns the texts that a value may have become, each with its form.
func formsOf(value string) map[string]Form {
	forms := map[string]Form{}
	add := func(form Form, text string) {
		if _, known := forms[text]; !known && len(text) >= MinBytes {
			forms[text] = form
		}
	}
	add(Raw, value)
	add(Raw, strings.TrimSpace(value))
	if utf8.ValidString(value) && strings.Contains(value, "\n") {
		for line := range strings.SplitSeq(value, "\n") {
			// The lines around a PEM block are no secret.
			if line = strings.TrimSpace(line); len(line) >= minLine && !strings.HasPrefix(line, "-----") {
				add(Line, line)
			}
		}
	}
	// Lines are escaped too: a log in JSON has each line as a message.
	for _, text := range slices.Sorted(maps.Keys(forms)) {
		addEncoded(add, text)
	}
	return forms
}

func addEncoded(add func(Form, string), value string) {
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		add(Base64, encoding.EncodeToString([]byte(value)))
		raw := encoding.WithPadding(base64.NoPadding)
		add(Base64, raw.EncodeToString([]byte(value)))
		for before := range 3 {
			if inner := innerBase64(raw, value, before); len(inner) >= minInner {
				add(Base64, inner)
			}
		}
	}
	add(Hex, hex.EncodeToString([]byte(value)))
	add(Hex, strings.ToUpper(hex.EncodeToString([]byte(value))))
	query := url.QueryEscape(value)
	component := strings.NewReplacer("+", "%20", "%21", "!", "%27", "'", "%28", "(", "%29", ")", "%2A", "*").Replace(query)
	for _, escaped := range []string{query, strings.ReplaceAll(query, "+", "%20"), component, url.PathEscape(value)} {
		add(URL, escaped)
		add(URL, percent.ReplaceAllStringFunc(escaped, strings.ToLower))
	}
	if utf8.ValidString(value) {
		for _, once := range jsonForms(value) {
			add(JSON, once)
			for _, twice := range jsonForms(once) {
				add(JSON, twice)
			}
		}
	}
}

var percent = regexp.MustCompile(`%[0-9A-F]{2}`)

// innerBase64 returns the characters that each base64 text has that encodes so many bytes, a
// multiple of three more, the value, and anything.
func innerBase64(encoding *base64.Encoding, value string, before int) string {
	text := encoding.EncodeToString([]byte("\x00\x00"[:before] + value))
	if (before+len(value))%3 != 0 {
		text = text[:len(text)-1] // It has bits of the next byte.
	}
	skip := []int{0, 2, 3}[before]
	return text[min(skip, len(text)):]
}

// jsonForms returns a value as the inside of a string by the habits of encoders: as little as
// possible is escaped, or also HTML, or also slashes, or all but ASCII.
func jsonForms(value string) []string {
	var html, plain bytes.Buffer
	encoder := json.NewEncoder(&html)
	_ = encoder.Encode(value) // A string cannot fail.
	encoder = json.NewEncoder(&plain)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value)
	inside := func(b *bytes.Buffer) string { return strings.TrimSuffix(b.String(), "\n")[1 : b.Len()-2] }
	least := inside(&plain)
	return []string{least, inside(&html), strings.ReplaceAll(least, "/", `\/`), ascii(least), ascii(strings.ReplaceAll(least, "/", `\/`))}
}

// ascii escapes all other characters.
func ascii(text string) string {
	var out strings.Builder
	for _, r := range text {
		switch {
		case r < utf8.RuneSelf:
			out.WriteRune(r)
		case r > 0xFFFF:
			r -= 0x10000
			fmt.Fprintf(&out, `\u%04x\u%04x`, 0xD800+r>>10, 0xDC00+r&0x3FF)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}
