package archiver

import (
	"os"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/service"
)

// settingsRow is one row of the table of settings in docs/archiver.md.
type settingsRow struct{ meaning, fallback, bounds, wrong string }

func settingsTable(t *testing.T) map[string]settingsRow {
	t.Helper()
	data, err := os.ReadFile("../docs/archiver.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(data), "\n## Settings\n")
	if !ok {
		t.Fatal("docs/archiver.md has no section Settings")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	rows := map[string]settingsRow{}
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.ReplaceAll(strings.TrimSpace(line), `\|`, "\x00"), "|")
		if len(cells) < 2 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "`") {
			continue
		}
		if len(cells) != 7 {
			t.Fatalf("want five cells: %s", line)
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(strings.ReplaceAll(cells[i], "\x00", "|"))
		}
		name := strings.Trim(cells[1], "`")
		if _, twice := rows[name]; twice {
			t.Errorf("%s has two rows", name)
		}
		rows[name] = settingsRow{cells[2], cells[3], cells[4], cells[5]}
	}
	return rows
}

// Every setting has its row in docs/archiver.md: meaning, default, bounds, and what happens when it is set wrong.
func TestEverySettingIsInTheDocs(t *testing.T) {
	rows := settingsTable(t)
	keys := map[string]service.Key{}
	for _, k := range Keys() {
		keys[k.Name] = k // the later wins
	}
	for name, k := range keys {
		r, ok := rows[name]
		if !ok {
			t.Errorf("docs/archiver.md: no row for %s", name)
			continue
		}
		want := "`" + k.Default + "`"
		if k.Default == "" {
			want = "none"
		}
		if got, _, _ := strings.Cut(r.fallback, " ("); got != want {
			t.Errorf("docs/archiver.md: the default of %s is %s, in the program %s", name, got, want)
		}
		if r.meaning == "" || r.bounds == "" || r.wrong == "" {
			t.Errorf("docs/archiver.md: a cell of %s is empty", name)
		}
		if k.Required && !strings.Contains(r.bounds, "required") {
			t.Errorf("docs/archiver.md: %s is required, and its row does not say so", name)
		}
		for _, v := range k.OneOf {
			if !strings.Contains(r.bounds, "`"+v+"`") {
				t.Errorf("docs/archiver.md: the row of %s does not name the value %s", name, v)
			}
		}
	}
	for name := range rows {
		if _, ok := keys[name]; !ok {
			t.Errorf("docs/archiver.md: %s is no setting", name)
		}
	}
}
