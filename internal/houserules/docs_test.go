package houserules

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A page that says which test shows what must not name one that is not there.
func TestTestsNamedInDocsExist(t *testing.T) {
	root := filepath.Join("..", "..")
	var tests []string
	declared := regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9_]+)\(`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		src, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(src, -1) {
			tests = append(tests, string(m[1]))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	exists := func(name string) bool {
		prefix, cut := strings.CutSuffix(name, "…") // one of several, by how its name begins
		for _, have := range tests {
			if have == name || cut && strings.HasPrefix(have, prefix) {
				return true
			}
		}
		return false
	}
	named := regexp.MustCompile("`(Test[A-Za-z0-9_]+…?)`")
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	found := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllSubmatch(text, -1) {
			found++
			if !exists(string(m[1])) {
				t.Errorf("%s names %s, which is not there", filepath.Base(page), m[1])
			}
		}
	}
	if found == 0 {
		t.Error("no page names a test: this one shows nothing")
	}
}
