package runlog_test

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var (
	mdLink    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	mdHeading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	mdSource  = regexp.MustCompile("`([\\w.-]+/[\\w./-]+\\.go)`")
	mdBlock   = regexp.MustCompile("(?ms)^```.*?^```")
)

// TestProseLinks follows every link from a document to a file of the repository and to a heading,
// and looks for every source file that a document names with its folder.
func TestProseLinks(t *testing.T) {
	for _, name := range proseFiles(t) {
		if !strings.HasSuffix(name, ".md") {
			continue
		}
		text, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			continue // Deleted, and not yet in the index.
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, says := range checkLinks(name, string(text), os.ReadFile) {
			t.Error(says)
		}
	}
}

// checkLinks returns a line for each link of a document that leads nowhere, and for each source
// file that does not exist. A link to another host is not followed.
func checkLinks(name, text string, read func(string) ([]byte, error)) []string {
	var out []string
	for _, m := range mdSource.FindAllStringSubmatch(text, -1) {
		if _, err := read(m[1]); err != nil {
			out = append(out, fmt.Sprintf("%s: source file: %v", name, err))
		}
	}
	for _, m := range mdLink.FindAllStringSubmatch(mdBlock.ReplaceAllString(text, ""), -1) {
		if strings.Contains(m[1], "://") {
			continue
		}
		file, heading, _ := strings.Cut(m[1], "#")
		target := name
		if file != "" {
			target = path.Join(path.Dir(name), file)
		}
		there := []byte(text)
		if target != name {
			if info, err := os.Stat(target); err == nil && info.IsDir() {
				continue
			}
			var err error
			if there, err = read(target); err != nil {
				out = append(out, fmt.Sprintf("%s: link to %s: %v", name, m[1], err))
				continue
			}
		}
		if heading != "" && !hasHeading(string(there), heading) {
			out = append(out, fmt.Sprintf("%s: link to %s: %s has no such heading", name, m[1], target))
		}
	}
	return out
}

// hasHeading reports whether a document has a heading with this anchor: the heading in lower case,
// without punctuation, with hyphens for blanks.
func hasHeading(text, anchor string) bool {
	for _, m := range mdHeading.FindAllStringSubmatch(mdBlock.ReplaceAllString(text, ""), -1) {
		slug := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, m[1])
		if slug == anchor {
			return true
		}
	}
	return false
}

// TestProseLinksFail shows which links are refused.
func TestProseLinksFail(t *testing.T) {
	read := func(name string) ([]byte, error) {
		if name == "docs/b.md" {
			return []byte("# Keys (APP-1)\n\n```\n# no heading\n```\n"), nil
		}
		if name == "raft/node.go" {
			return nil, nil
		}
		return nil, os.ErrNotExist
	}
	for _, c := range []struct {
		text string
		want int
	}{{"`raft/node.go` and `.go`", 0}, {"`raft/gone.go`", 1}, {"`gone.go`", 0}} {
		if got := checkLinks("docs/a.md", c.text, read); len(got) != c.want {
			t.Errorf("%s: want %d faults, got %q", c.text, c.want, got)
		}
	}
	for link, want := range map[string]int{
		"b.md":              0,
		"b.md#keys-app-1":   0,
		"b.md#no-heading":   1,
		"b.md#others":       1,
		"c.md":              1,
		"../docs/b.md":      0,
		"#own-part":         0,
		"#other-part":       1,
		"https://c2sp.org/": 0,
	} {
		got := checkLinks("docs/a.md", "## Own part\n\n[text]("+link+")\n", read)
		if len(got) != want {
			t.Errorf("%s: want %d faults, got %q", link, want, got)
		}
	}
}
