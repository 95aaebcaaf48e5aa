package secrets

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Parts of secrets. No file has a whole one, because other scanners look for them too.
const (
	letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	mixed   = "aB3dE5gH7jK9mN1pQ2sT4vW6yZ8bC0eF2hJ4lM6oP8rS0uV2xY4zA6cD8fG0iK2"
)

// examples returns an example of each kind, and for some kinds several.
func examples(t testing.TB) map[string]Kind {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	armoured := func(kind string) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	object := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256","kid":"1"}`))
	return map[string]Kind{
		armoured("PRIVATE" + " KEY"):                                           PrivateKey,
		armoured("RSA PRIVATE" + " KEY"):                                       PrivateKey,
		armoured("OPENSSH PRIVATE" + " KEY"):                                   PrivateKey,
		strings.ReplaceAll(armoured("PGP PRIVATE"+" KEY BLOCK"), "\n", "\r\n"): PrivateKey,
		"AK" + "IA" + letters[:awsLength]:                                      AWSKey,
		"AS" + "IA" + letters[4:4+awsLength]:                                   AWSKey,
		"AI" + "za" + mixed[:googleLength]:                                     GoogleKey,
		"ya" + "29.a0" + mixed[:40]:                                            GoogleKey,
		"DefaultEndpointsProtocol=https;AccountName=a;Account" + "Key=" + mixed + mixed[:22] + "==;EndpointSuffix=core.x": AzureKey,
		"Endpoint=sb://x/;SharedAccess" + "Key=" + mixed[:43] + "=":                                                       AzureKey,
		"rl" + "j_" + mixed[:runlogLength]:                                                                                RunlogToken,
		"rl" + "w_" + mixed[:runlogLength]:                                                                                RunlogToken,
		"rl" + "k_" + mixed[:runlogLength]:                                                                                RunlogToken,
		"gh" + "p_" + mixed[:githubLength]:                                                                                GitHubToken,
		"gh" + "s_" + mixed[:githubLength]:                                                                                GitHubToken,
		"github" + "_pat_" + mixed[:22] + "_" + mixed[:59]:                                                                GitHubToken,
		object + "." + object + "." + mixed[:43]:                                                                          JWT,
		"Bearer" + " " + mixed[:24]:                                                                                       BearerToken,
		"authorization: bearer" + " " + mixed[:24]:                                                                        BearerToken,
		"AUTHORIZATION: BEARER" + " " + mixed[:24]:                                                                        BearerToken,
		base64.StdEncoding.EncodeToString([]byte(armoured("PRIVATE" + " KEY"))):                                           PrivateKey,
		base64.StdEncoding.EncodeToString([]byte(armoured("RSA PRIVATE" + " KEY"))):                                       PrivateKey,
		base64.RawURLEncoding.EncodeToString([]byte(armoured("EC PRIVATE" + " KEY"))):                                     PrivateKey,
	}
}

// TestFind finds an example of each kind at every distance from the beginning of a text, as a value
// of JSON and after a line break.
func TestFind(t *testing.T) {
	t.Parallel()
	missing := map[Kind]bool{}
	for _, kind := range Kinds() {
		missing[kind] = true
	}
	for text, want := range examples(t) {
		delete(missing, want)
		value, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		inLine, err := json.Marshal("first line\n" + text + "\nlast line")
		if err != nil {
			t.Fatal(err)
		}
		for distance := range 20 {
			for _, payload := range []string{
				`{"` + strings.Repeat("x", distance) + `":` + string(value) + `}`,
				`{"` + strings.Repeat("x", distance) + `":` + string(inLine) + `,"b":1}`,
			} {
				kind, at := Find([]byte(payload))
				if kind != want || at < 0 || at >= len(payload) {
					t.Fatalf("%s: %q at %d in %.30s", want, kind, at, payload)
				}
			}
		}
		if kind, _ := Find([]byte(text)); kind != want {
			t.Errorf("%s: %q in the text alone", want, kind)
		}
	}
	for kind := range missing {
		t.Errorf("%s has no example", kind)
	}
}

// TestFindJSON: some encoders escape characters that need no escape, such as Gson = and .NET +. A
// secret is found nevertheless, at its place in the text as it is written.
func TestFindJSON(t *testing.T) {
	t.Parallel()
	escapes := map[string]func(rune) bool{
		"punctuation": func(r rune) bool { return strings.ContainsRune("+/=-_. ", r) },
		"letters":     func(r rune) bool { return r >= 'A' && r <= 'z' },
		"all":         func(rune) bool { return true },
	}
	for text, want := range examples(t) {
		for name, escaped := range escapes {
			for _, format := range []string{`\u%04x`, `\u%04X`} {
				var written strings.Builder
				for _, r := range text {
					if escaped(r) || r < ' ' {
						fmt.Fprintf(&written, format, r)
					} else {
						written.WriteRune(r)
					}
				}
				const before = `{"a":"\u00e9\u0041 \\u00zz","token":"`
				payload := before + written.String() + `"}`
				kind, at := FindJSON([]byte(payload))
				if kind != want || at < len(before) || at > len(before)+written.Len()/2 {
					t.Errorf("%s, %s: %q at %d of %s", want, name, kind, at, payload)
				}
			}
		}
	}
	for _, none := range []string{`{}`, `{"a":"\u0041\u00"}`, `\u00`, `\u0`, `"\u0041KIA"`} {
		if kind, at := FindJSON([]byte(none)); kind != "" {
			t.Errorf("%s: %s at %d", none, kind, at)
		}
	}
}

// TestFindNothing: texts that only resemble a secret are none.
func TestFindNothing(t *testing.T) {
	t.Parallel()
	object := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`))
	certificate := base64.StdEncoding.EncodeToString([]byte("-----BEGIN CERTIFICATE-----\n" + mixed + mixed))
	short := base64.StdEncoding.EncodeToString([]byte("-----BEGIN PRIVATE" + " KEY-----\n"))
	for _, text := range []string{
		"", "r", "rlk_", "AKIA", "eyJ", "PRIVATE KEY", "Bearer", "tKey",
		"AKIAIOSFODNN7", "xAKIA" + letters[:16], "AKIA" + letters[:17], "AKIA" + strings.ToLower(letters[:16]),
		"-----BEGIN PRIVATE KEY-----", "want -----BEGIN PRIVATE KEY----- in the first line",
		"-----BEGIN PUBLIC KEY-----\n" + mixed, "-----BEGIN CERTIFICATE-----\n" + mixed + mixed,
		object + "." + object + ".", object, object + "." + object,
		"Bearer authentication-is-required-here", "the bearer of this letter", "Bearer <token>", "bearer 1234",
		"rlk_short", "rlk_" + mixed[:44], "github_pat_name", "ghp_name", "AccountKey=", "AccountKey=secretRef",
		"BEARER AUTHENTICATION-IS-REQUIRED", certificate, short, "LS0t", "LS0tLS1CRUdJTi",
		"secretRef:vault/aws/key", "keyboard", "https://example.com/early/url",
	} {
		if kind, at := Find([]byte(text)); kind != "" {
			t.Errorf("%q has %s at %d", text, kind, at)
		}
	}
}

// TestOrdinaryPayloads: random ids, digests, and base64 of random bytes are no secrets.
func TestOrdinaryPayloads(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		random := func(label string) []byte { return rapid.SliceOfN(rapid.Byte(), 1, 200).Draw(t, label) }
		payload, err := json.Marshal(map[string]any{
			"digest": hex.EncodeToString(random("digest")), "standard": base64.StdEncoding.EncodeToString(random("standard")),
			"url": base64.RawURLEncoding.EncodeToString(random("url")), "big": strings.ToUpper(hex.EncodeToString(random("upper"))),
			"eventId": rapid.StringMatching(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`).Draw(t, "id"),
			"words":   rapid.SliceOf(rapid.StringMatching(`[A-Za-z_]{1,12}`)).Draw(t, "words"),
			"message": rapid.String().Draw(t, "message"), "number": rapid.Float64().Draw(t, "number"),
			"uri": "s3://artifacts/" + rapid.StringMatching(`[A-Za-z0-9_/.-]{0,60}`).Draw(t, "path"),
		})
		if err != nil {
			t.Fatal(err)
		}
		if kind, at := Find(payload); kind != "" {
			t.Fatalf("%s at %d of %s", kind, at, payload)
		}
	})
}

// TestFindsInRandomText: a secret is found wherever it is put into an ordinary text.
func TestFindsInRandomText(t *testing.T) {
	t.Parallel()
	var texts []string
	for text := range examples(t) {
		texts = append(texts, text)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom(texts).Draw(t, "secret")
		before, after := rapid.StringMatching(`[ a-zA-Z0-9{}:,"]{0,40}`).Draw(t, "before"), rapid.StringMatching(`[ a-zA-Z0-9{}:,"]{0,40}`).Draw(t, "after")
		if kind, _ := Find([]byte(before + ` "` + text + `" ` + after)); kind == "" {
			t.Fatalf("none in %q and %q", before, after)
		}
	})
}

// FuzzFind: no text makes Find fail, and what it finds begins within the text, and is found in the
// rest of the text alone.
func FuzzFind(f *testing.F) {
	for text := range examples(f) {
		if !strings.Contains(text, "-----") {
			f.Add([]byte(text))
		}
	}
	for _, text := range []string{"", "e", "AKIA", "-----BEGIN PRIVATE KEY-----", "tKey=", "ub_pat_", "eyJ.eyJ.", `{"a":"\nrlk_"}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		kind, at := Find(text)
		if kind == "" {
			if hidden, at := FindJSON(text); at < 0 || hidden != "" && at >= len(text) {
				t.Fatalf("%s at %d of %d bytes", hidden, at, len(text))
			}
			return
		}
		if at < 0 || at >= len(text) {
			t.Fatalf("%s at %d of %d bytes", kind, at, len(text))
		}
		if again, from := FindJSON(text); again != kind || from != at {
			t.Errorf("%s at %d, and %q at %d as JSON", kind, at, again, from)
		}
		if again, from := Find(text[at:]); again != kind || from != 0 {
			t.Errorf("%s at %d, and %q at %d of the rest", kind, at, again, from)
		}
	})
}

// BenchmarkFind measures ordinary payloads, per KiB.
func BenchmarkFind(b *testing.B) {
	const step = `{"artifacts":[{"uri":"s3://dvt-artifacts/prod/run_2026-02-11_abc123/build/manifest.json","kind":"dbt-manifest","sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","sizeBytes":184320}],"metrics":{"rowsRead":1829301,"cpuSeconds":12.75},"completedAt":"2026-02-11T10:31:12.500Z"}`
	random := make([]byte, 768)
	if _, err := rand.Read(random); err != nil {
		b.Fatal(err)
	}
	for name, text := range map[string]string{
		"step":   strings.Repeat(step, 4)[:1024],
		"prose":  strings.Repeat("the early bearer of a key sees a url near the area; ", 20)[:1024],
		"base64": base64.StdEncoding.EncodeToString(random),
		"nested": strings.Repeat(strings.ReplaceAll(step, `"`, `\"`), 4)[:1024],
		// as .NET writes JSON in JSON
		"escaped": strings.Repeat(strings.ReplaceAll(step, `"`, `\u0022`), 4)[:1024],
	} {
		payload := []byte(text)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(payload)))
			b.ReportAllocs()
			for b.Loop() {
				if kind, _ := FindJSON(payload); kind != "" {
					b.Fatal(kind)
				}
			}
		})
	}
}
