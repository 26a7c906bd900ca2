package segment_test

import (
	"os"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/segment"
)

// TestFormatPage: the page that describes the bytes names what is in them, in order.
func TestFormatPage(t *testing.T) {
	b, err := os.ReadFile("FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	if !strings.Contains(page, "\n"+segment.RecordSchema+"\n") {
		t.Error("FORMAT.md does not hold the record schema")
	}
	data, _ := fullSegment(t, "")
	_, body, err := segment.ParseHeader("object", data)
	if err != nil {
		t.Fatal(err)
	}
	entries, _ := segment.Entries(segment.Unseal(data[:body]))
	keys := []string{"tapedeck.format", "tapedeck.header.bytes", "tapedeck.header.xxh64"}
	for _, e := range entries {
		key, _, numbered := strings.Cut(e.Key, ".000")
		if numbered {
			key += ".<n>"
		}
		keys = append(keys, key)
	}
	_, rest, _ := strings.Cut(page, "## Metadata")
	for i, key := range keys {
		if i > 0 && key == keys[i-1] {
			continue
		}
		_, after, ok := strings.Cut(rest, "| `"+key+"` |")
		if !ok {
			t.Errorf("FORMAT.md does not describe %s, or not in its place", key)
			continue
		}
		rest = after
	}
}
