package rivals

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// inMark stands between the tenant and the letters of a mark.
const inMark = "zqk"

var (
	marked    = regexp.MustCompile(`(acme|umbrella)` + inMark + `[0-9a-z]{16}`)
	base64Run = regexp.MustCompile(`[A-Za-z0-9+/_-]{30,}`)
	hexRun    = regexp.MustCompile(`[0-9A-Fa-f]{46,}`)
	nonSpace  = regexp.MustCompile(`\s+`)
)

// newMark draws a mark of a tenant.
func newMark(rng *rand.Rand, tenant string) string {
	const letters = "0123456789abcdefghijklmnopqrstuvwxyz"
	text := []byte(tenant + inMark)
	for range 16 {
		text = append(text, letters[rng.IntN(len(letters))])
	}
	return string(text)
}

// marksIn returns the marks in a text with their tenants: as they are, in capitals, with space
// between their letters, in base64 and in hexadecimal digits.
func marksIn(text []byte) map[string]string {
	all := map[string]string{}
	look := func(view []byte) {
		for _, m := range marked.FindAllSubmatch(bytes.ToLower(view), -1) {
			all[string(m[0])] = string(m[1])
		}
	}
	look(text)
	look(nonSpace.ReplaceAll(text, nil))
	for _, run := range base64Run.FindAll(text, -1) {
		standard := bytes.ReplaceAll(bytes.ReplaceAll(run, []byte("-"), []byte("+")), []byte("_"), []byte("/"))
		for at := range 4 {
			part := standard[at:]
			if len(part)%4 == 1 { // No byte has a single letter.
				part = part[:len(part)-1]
			}
			if decoded, err := base64.RawStdEncoding.DecodeString(string(part)); err == nil {
				look(decoded)
			}
		}
	}
	for _, run := range hexRun.FindAll(text, -1) {
		for at := range 2 {
			part := run[at:]
			if decoded, err := hex.DecodeString(string(part[:len(part)/2*2])); err == nil {
				look(decoded)
			}
		}
	}
	return all
}

// checker reads all that tenants receive.
type checker struct {
	mu     sync.Mutex
	sent   map[string]map[string]bool   // the marks that a tenant has sent, by tenant
	tokens map[string]map[string]string // tokens and what they are, by the tenant that has them
	looked map[string]int               // how many texts, by place
	leaks  []string
	// strict: what a tenant has sent must not come back. A test that plants marks has it.
	strict bool
}

func newChecker() *checker {
	return &checker{sent: map[string]map[string]bool{}, tokens: map[string]map[string]string{}, looked: map[string]int{}}
}

// sends notes what a tenant sends: it may come back.
func (c *checker) sends(tenant string, text []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sent[tenant] == nil {
		c.sent[tenant] = map[string]bool{}
	}
	for mark := range marksIn(text) {
		c.sent[tenant][mark] = true
	}
}

// keeps notes a token of a tenant.
func (c *checker) keeps(tenant, token, what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tokens[tenant] == nil {
		c.tokens[tenant] = map[string]string{}
	}
	c.tokens[tenant][token] = what
}

// receives checks what a tenant receives at a place, by an attack of its own or beside one.
func (c *checker) receives(tenant, attack, place string, text []byte) {
	found := marksIn(text)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looked[place]++
	for mark, of := range found {
		if of != tenant && (c.strict || !c.sent[tenant][mark]) {
			from := max(bytes.Index(text, []byte(mark))-200, 0)
			c.leaks = append(c.leaks, fmt.Sprintf("%s has received %s; attack %s, place %s: %.500q", tenant, mark, attack, place, text[from:]))
		}
	}
	for of, tokens := range c.tokens {
		for token, what := range tokens {
			if of != tenant && bytes.Contains(text, []byte(token)) {
				c.leaks = append(c.leaks, fmt.Sprintf("%s has received the %s of %s; attack %s, place %s", tenant, what, of, attack, place))
			}
		}
	}
}

// TestCheckerSEC4: the checker finds each planted mark, in every form that it knows, and a token.
// What the tenant has sent itself may come back.
func TestCheckerSEC4(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	mark := newMark(rng, "umbrella")
	behind := []byte("of " + mark + ".")
	for form, text := range map[string]string{
		"as it is": "a " + mark + " b", "in JSON": `{"a":"` + mark + `"}`, "in capitals": strings.ToUpper(mark),
		"with spaces": strings.Join(strings.Split(mark, ""), " "), "in lines": mark[:9] + "\n" + mark[9:],
		"in base64": base64.StdEncoding.EncodeToString(behind), "in base64 of URLs": base64.RawURLEncoding.EncodeToString(behind[1:]),
		"in base64, between letters": "token" + base64.RawURLEncoding.EncodeToString(behind[2:]) + "AAAA",
		"in hexadecimal digits":      hex.EncodeToString([]byte(mark)), "its token": "Bearer umbrella-token",
	} {
		c := newChecker()
		c.keeps("umbrella", "umbrella-token", "token")
		c.receives("umbrella", "none", "its own", []byte(text))
		if len(c.leaks) != 0 {
			t.Errorf("%s: %q", form, c.leaks)
		}
		c.receives("acme", "planted", form, []byte(text))
		if len(c.leaks) != 1 || !strings.Contains(c.leaks[0], "attack planted, place "+form) {
			t.Errorf("%s: the leaks are %q", form, c.leaks)
		}
		if form != "its token" {
			c.sends("acme", []byte(text))
			c.receives("acme", "its own", form, []byte(text))
		}
		if len(c.leaks) != 1 {
			t.Errorf("%s: the tenant has sent it: %q", form, c.leaks)
		}
	}
}
