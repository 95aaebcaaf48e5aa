package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// stream writes a text in chunks of drawn lengths.
func stream(t *rapid.T, r *Redactor, text string) string {
	var out bytes.Buffer
	w := r.NewWriter(&out)
	for rest := text; rest != ""; {
		n := min(rapid.IntRange(1, 1+len(text)).Draw(t, "chunk"), len(rest))
		if written, err := w.Write([]byte(rest[:n])); written != n || err != nil {
			t.Fatalf("wrote %d of %d: %v", written, n, err)
		}
		rest = rest[n:]
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// drawValues draws secrets of few characters, of the mark's characters, and of any bytes, so that
// they overlap with each other, with texts and with marks.
func drawValues(t *rapid.T) []string {
	return rapid.SliceOfN(rapid.OneOf(
		rapid.StringMatching(`[ab]{4,9}`), rapid.StringMatching(`[\[\]secrt*#]{4,12}`), rapid.StringMatching(`[a-zA-Z0-9+/=_."\\<>& -]{4,40}`),
		rapid.StringN(4, 20, 60), rapid.Map(rapid.SliceOfN(rapid.Byte(), 4, 50), func(b []byte) string { return string(b) }),
	), 1, 5).Draw(t, "values")
}

// TestRedactedStreamENG7: however secrets and other text are mixed and cut, what a Writer writes
// has none of them, in no form, and equals what Text returns.
func TestRedactedStreamENG7(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		values := map[string]string{}
		for i, v := range drawValues(t) {
			values[fmt.Sprint("env:", i)] = v
		}
		set, err := NewSet(values)
		if err != nil {
			t.Fatal(err)
		}
		r := set.Redactor()
		var known []string
		for _, v := range values {
			for text := range formsOf(v) {
				known = append(known, text)
			}
		}
		parts := rapid.SliceOfN(rapid.OneOf(
			rapid.SampledFrom(known), rapid.StringMatching(`[ab\[\]secrt* #]{0,6}`), rapid.StringN(0, 30, 90),
			rapid.Map(rapid.SampledFrom(known), func(s string) string { return s[:len(s)-1] }),
			rapid.Map(rapid.SampledFrom(known), func(s string) string { return s[1:] }),
		), 0, 12).Draw(t, "parts")
		text := strings.Join(parts, "")
		got := stream(t, r, text)
		for _, secret := range known {
			if strings.Contains(got, secret) {
				t.Fatalf("%q has %q: from %q with mark %q", got, secret, text, r.mark)
			}
		}
		if whole := r.Text(text); whole != got {
			t.Fatalf("the stream differs: %q, %q", got, whole)
		}
		if found := r.Scan([]byte(got)); len(found) > 0 {
			t.Fatalf("Scan finds %v in %q", found, got)
		}
		clean := true
		for _, secret := range known {
			clean = clean && !strings.Contains(text, secret)
		}
		if clean != (got == text) || clean != (len(r.Scan([]byte(text))) == 0) {
			t.Fatalf("clean %v: %q became %q", clean, text, got)
		}
	})
}

// TestLongStreamENG7 has secrets around the lengths at which a Writer empties its buffer.
func TestLongStreamENG7(t *testing.T) {
	t.Parallel()
	var b strings.Builder // A repeated text would overlap itself, and two would get one mark.
	for i := range 425 {
		fmt.Fprintf(&b, "%08x", i)
	}
	long := b.String()
	r := setOf(t, hunter, long).Redactor()
	rapid.Check(t, func(t *rapid.T) {
		var text, want strings.Builder
		for range rapid.IntRange(1, 4).Draw(t, "parts") {
			fill := strings.Repeat(".", rapid.IntRange(0, 40_000).Draw(t, "fill"))
			text.WriteString(fill + rapid.SampledFrom([]string{hunter, long}).Draw(t, "secret"))
			want.WriteString(fill + "[secret]")
		}
		if got := stream(t, r, text.String()); got != want.String() {
			t.Fatalf("%d bytes became %d, want %d", text.Len(), len(got), want.Len())
		}
	})
}

// TestFormsENG7 has the secret as programs repeat it.
func TestFormsENG7(t *testing.T) {
	t.Parallel()
	const value = "p/ss+wörd \"<&>\\ 😀 ~!'()*end"
	quoted, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	twice, err := json.Marshal(string(quoted))
	if err != nil {
		t.Fatal(err)
	}
	r := setOf(t, value).Redactor()
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	for name, text := range map[string]string{
		"raw":              value,
		"standard base64":  b64(value),
		"basic auth":       "Basic " + b64("user:"+value),
		"in base64, 0":     b64("abc" + value + "abc"),
		"in base64, 1":     b64("abcd" + value + "more"),
		"in base64, 2":     b64("abcde" + value),
		"URL base64":       base64.URLEncoding.EncodeToString([]byte("a" + value)),
		"raw URL base64":   base64.RawURLEncoding.EncodeToString([]byte(value)),
		"hex":              hex.EncodeToString([]byte(value)),
		"big hex":          strings.ToUpper(hex.EncodeToString([]byte(value))),
		"query":            "https://x/?p=" + url.QueryEscape(value),
		"path":             "https://x/" + url.PathEscape(value) + "/y",
		"JavaScript":       "p%2Fss%2Bw%C3%B6rd%20%22%3C%26%3E%5C%20%F0%9F%98%80%20~!'()*end",
		"small percents":   "p%2fss%2bw%c3%b6rd%20%22%3c%26%3e%5c%20%f0%9f%98%80%20~!'()*end",
		"JSON of Go":       string(quoted),
		"JSON in JSON":     string(twice),
		"JSON of Python":   `"p/ss+w\u00f6rd \"<&>\\ \ud83d\ude00 ~!'()*end"`,
		"JSON of PHP":      `"p\/ss+w\u00f6rd \"<&>\\ \ud83d\ude00 ~!'()*end"`,
		"with blanks":      "  " + value + "\n",
		"twice and joined": value + value,
	} {
		got := r.Text(text)
		if got == text || len(r.Scan([]byte(text))) == 0 || strings.Contains(got, "ss") && name == "raw" {
			t.Errorf("%s: %q became %q", name, text, got)
		}
	}
	const clean = "p/ss, wörd and the end; cGFzc3dvcmQ="
	if got := r.Text(clean); got != clean {
		t.Errorf("%q became %q", clean, got)
	}
}

// TestLinesENG7: logs have a key line by line. Its armour is no secret.
func TestLinesENG7(t *testing.T) {
	t.Parallel()
	line1, line2 := strings.Repeat("QUJD", 16), strings.Repeat("REVG", 16)
	key := "-----BEGIN TEST KEY-----\n" + line1 + "\n" + line2 + "\n-----END TEST KEY-----\n"
	r := setOf(t, key).Redactor()
	got := r.Text("12:00 -----BEGIN TEST KEY-----\n12:00 " + line1 + "\r\n12:00 " + line2 + "\n")
	if want := "12:00 -----BEGIN TEST KEY-----\n12:00 [secret]\r\n12:00 [secret]\n"; got != want {
		t.Errorf("want %q, got %q", want, got)
	}
	if got := r.Text("x" + strings.TrimSpace(key) + "x"); got != "x[secret]x" {
		t.Errorf("want the key as a whole replaced, got %q", got)
	}
}

// TestOverlapENG7: secrets that overlap leave no rest, and have one mark.
func TestOverlapENG7(t *testing.T) {
	t.Parallel()
	r := setOf(t, "abcdef", "defghi", "abcd").Redactor()
	for text, want := range map[string]string{
		"-abcdefghi-": "-[secret]-", "abcdabcd": "[secret][secret]", "xabcdx": "x[secret]x", "abcdefghabc": "[secret]ghabc",
	} {
		if got := r.Text(text); got != want {
			t.Errorf("%s: want %q, got %q", text, want, got)
		}
	}
}

// TestMarkENG7: a mark neither is nor makes a secret.
func TestMarkENG7(t *testing.T) {
	t.Parallel()
	for _, values := range [][]string{{"secret"}, {"]abc"}, {"abc["}, {"cret]", "[sec"}, {"xx[secret]yy"}, {"abc[", "*def", "#xyz"}} {
		r := setOf(t, values...).Redactor()
		text := strings.Join(values, "x") + "abc][abc" + strings.Join(values, "")
		if found := r.Scan(r.Bytes([]byte(text))); len(found) > 0 || r.mark == hidden {
			t.Errorf("%q: mark %q leaves %v", values, r.mark, found)
		}
	}
}

// TestJSONENG7: redacted JSON is JSON, and has no secret however its characters are escaped.
func TestJSONENG7(t *testing.T) {
	t.Parallel()
	r := setOf(t, hunter, "12345678", `{"key":"value of the key"}`).Redactor()
	escaped := ""
	for _, c := range hunter {
		escaped += fmt.Sprintf(`\u%04x`, c)
	}
	for text, want := range map[string]string{
		`{"a":"` + hunter + `","b":[1,-2.5e+3,true,null]}`: `{"a":"[secret]","b":[1,-2.5e+3,true,null]}`,
		`{"` + hunter + `": "x"}`:                          `{"[secret]": "x"}`,
		`"` + escaped + `"`:                                `"[secret]"`,
		`[12345678, 9123456780, 1234567]`:                  `["[secret]", "9[secret]0", 1234567]`,
		` {"key":"value of the key"} `:                     `"[secret]"`,
		`"plain A"`:                                        `"plain A"`,
	} {
		got := string(r.JSON([]byte(text)))
		if got != want || !json.Valid([]byte(got)) {
			t.Errorf("%s: want %s, got %s", text, want, got)
		}
	}
}

// TestJSONPropertyENG7 has JSON of random values with secrets in them.
func TestJSONPropertyENG7(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		values := map[string]string{}
		for i, v := range rapid.SliceOfN(rapid.StringMatching(`[a-z0-9{}":,]{4,12}`), 1, 3).Draw(t, "values") {
			values[fmt.Sprint("env:", i)] = v
		}
		set, err := NewSet(values)
		if err != nil {
			t.Fatal(err)
		}
		draw := func() string {
			return rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{values["env:0"], "x" + values["env:0"]})).Draw(t, "text")
		}
		text, err := json.Marshal(map[string]any{draw(): []any{draw(), rapid.Int().Draw(t, "n"), map[string]any{draw(): draw()}}})
		if err != nil {
			t.Fatal(err)
		}
		got := set.Redactor().JSON(text)
		if !json.Valid(got) || len(set.Redactor().Scan(got)) > 0 {
			t.Fatalf("%s became %s", text, got)
		}
	})
}

// FuzzJSON: no text of JSON makes JSON fail, and the answer is JSON.
func FuzzJSON(f *testing.F) {
	for _, text := range []string{`{}`, `"hunter2-correct-horse"`, `[1e5,{"a":"\ud800"}]`, `"ሴ\\"`, `-0`} {
		f.Add([]byte(text))
	}
	r := setOf(f, hunter, "1e5-").Redactor()
	f.Fuzz(func(t *testing.T, text []byte) {
		if got := r.JSON(text); json.Valid(text) && !json.Valid(got) || len(r.Scan(got)) > 0 {
			t.Fatalf("%s became %s", text, got)
		}
	})
}

type brokenWriter struct{ err error }

func (b brokenWriter) Write([]byte) (int, error) { return 0, b.err }

// TestWriterFailsENG7: a failure of the other writer is returned, and no more is collected.
func TestWriterFailsENG7(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	w := setOf(t, hunter).Redactor().NewWriter(brokenWriter{broken})
	chunk := bytes.Repeat([]byte("x"), 100_000)
	var err error
	for range 10 {
		_, err = w.Write(chunk)
	}
	if !errors.Is(err, broken) || !errors.Is(w.Close(), broken) {
		t.Errorf("want the error of the writer, got %v", err)
	}
	if cap(w.text) > 1<<20 {
		t.Errorf("it has collected %d bytes", cap(w.text))
	}
}

// BenchmarkWriter measures text without a secret, with 10 secrets.
func BenchmarkWriter(b *testing.B) {
	var values []string
	for i := range 10 {
		values = append(values, fmt.Sprintf("%x-secret-value-%d", i*7919, i))
	}
	w := setOf(b, values...).Redactor().NewWriter(discard{})
	chunk := []byte(strings.Repeat("12:00:01 step 17 of model stg_orders finished in 0.25s with 1829301 rows\n", 450))
	b.SetBytes(int64(len(chunk)))
	for b.Loop() {
		w.Write(chunk)
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
