package schema

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"runlog/proto/contract/jsontext"
)

// The forms of text mean what pattern and format mean to the library, on texts that are nearly
// right.
func TestENV5TextForms(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for i := range textForms {
		form := &textForms[i]
		c := jsonschema.NewCompiler()
		c.AssertFormat()
		schema := map[string]any{"pattern": form.pattern}
		if form.format != "" {
			schema["format"] = form.format
		}
		if err := c.AddResource("form.json", schema); err != nil {
			t.Fatal(err)
		}
		judge := c.MustCompile("form.json")
		matching := 0
		const texts = 20000
		for range texts {
			text := nearly(random, i == 0)
			want := judge.Validate(text) == nil
			if form.matches([]byte(text)) != want {
				t.Fatalf("%s: %q is one: %v, and here %v", form.help, text, want, !want)
			}
			if want {
				matching++
			}
		}
		if matching < texts/10 || matching > texts*9/10 {
			t.Errorf("%s: %d of %d match, which shows little", form.help, matching, texts)
		}
	}
}

// nearly makes a date-time or a digest in which little is wrong.
func nearly(random *rand.Rand, date bool) string {
	var text string
	if date {
		n := func(most int) int { return random.IntN(most + 1 + random.IntN(2)) }
		text = fmt.Sprintf("%04d-%02d-%02d%c%02d:%02d:%02d", n(2400), n(12), n(31), "TTTt"[random.IntN(4)], n(23), n(59), n(59))
		if random.IntN(4) == 0 {
			text = text[:17] + "60"
			if random.IntN(2) == 0 {
				text = text[:11] + "23:59:60"
			}
		}
		if random.IntN(2) == 0 {
			text += "." + strings.Repeat("0", random.IntN(12))
		}
		if random.IntN(2) == 0 {
			text += "Zzz"[random.IntN(2):][:1]
		} else {
			text += fmt.Sprintf("%c%02d:%02d", "+-"[random.IntN(2)], n(23), n(59))
		}
	} else {
		text = strings.Repeat("0123456789abcdefABCDEF0", 3)[random.IntN(4):][:63+random.IntN(3)]
	}
	if random.IntN(3) == 0 {
		b := []byte(text)
		b[random.IntN(len(b))] = "0123+-: .,TZzgG\n\x00\x7f"[random.IntN(18)]
		text = string(b)
	}
	return text
}

// Whole numbers are those that exact arithmetic finds whole, in every spelling.
func TestENV5WholeNumbers(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	digits := func(most int) string {
		b := make([]byte, random.IntN(most)+1)
		for i := range b {
			b[i] = "000123"[random.IntN(6)]
		}
		return string(b)
	}
	texts := []string{
		"0", "-0", "0.0", "-0.0e0", "1e1000000", "1e1000001", "10e-1000000", "1.0e1000001", "1.0e1000000", "0e99999999999999999999",
		"0e9223372036854775807", "1e9223372036854775807", "1e-9223372036854775808", "1.5e-9223372036854775808", "1e-9223372036854775809",
	}
	for range 5000 {
		text := strings.Repeat("-", random.IntN(2)) + strings.TrimLeft(digits(6), "0")
		if strings.TrimLeft(text, "-") == "" {
			text += "0"
		}
		if random.IntN(2) == 0 {
			text += "." + digits(4)
		}
		if random.IntN(2) == 0 {
			text += []string{"e", "E+", "e-"}[random.IntN(3)] + digits(1)
		}
		texts = append(texts, text)
	}
	whole := 0
	for _, text := range texts {
		if end, fault := jsontext.ScanNumber([]byte(text), 0); fault != 0 || end != len(text) {
			t.Fatalf("%s is no JSON number", text)
		}
		exact, ok := new(big.Rat).SetString(text)
		want := ok && exact.IsInt()
		if isWhole([]byte(text)) != want {
			t.Errorf("%s is whole: %v, and here %v", text, want, !want)
		}
		if want {
			whole++
			if isNegative([]byte(text)) != (exact.Sign() < 0) {
				t.Errorf("%s is negative: %v", text, exact.Sign() < 0)
			}
		}
	}
	if whole < len(texts)/10 || whole > len(texts)*9/10 {
		t.Errorf("%d of %d are whole, which shows little", whole, len(texts))
	}
}
