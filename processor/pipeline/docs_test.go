package pipeline

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The example of docs/pipeline.md is a pipeline, and the page names every setting.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/pipeline.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1)
	if len(examples) == 0 {
		t.Fatal("no example")
	}
	for _, e := range examples {
		parse(t, string(e[1]))
	}
	for _, setting := range []string{"name", "keyed", "sources", "groupBy", "window", "aggregates", "output", "topic", "format", "schema", "schemaFile",
		"eventTime", "delay", "maxFuture", "idleness", "where", "compute", "partitions"} {
		if !strings.Contains(string(page), "| `"+setting+"`") {
			t.Errorf("docs/pipeline.md does not describe %s", setting)
		}
	}
	for _, f := range impure {
		if !strings.Contains(string(page), "`"+f+"`") {
			t.Errorf("docs/pipeline.md does not say that %s is not allowed", f)
		}
	}
	// The two errors that the page shows are those that are given.
	text := string(examples[0][1])
	for old, new := range map[string]string{"keyed:": "kyed:", "sum(price)": "sum(prcie)"} {
		if _, err := Parse("fares.yaml", []byte(strings.Replace(text, old, new, 1))); err == nil || !strings.Contains(string(page), err.Error()+"\n") {
			t.Errorf("the page does not show %v", err)
		}
	}
}
