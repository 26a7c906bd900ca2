package registry

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/schema/schematest"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store/mem"
)

// levels makes a snapshot of pairs of subject and level.
func levels(global string, pairs ...string) *archive.LevelSnapshot {
	s := &archive.LevelSnapshot{Global: global, Subjects: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		s.Subjects[pairs[i]] = pairs[i+1]
	}
	return s
}

// levelsOf is what is in a plan, and of the registry's dump.
func levelsOf(p *job.RegistryPlan, f *schematest.Registry) (planned, held string) {
	var out, lines []string
	for _, l := range p.Levels {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", l.Subject, l.Level, l.Action, l.Own)))
	}
	for _, l := range strings.Split(f.Dump(), "\n") {
		if rest, ok := strings.CutPrefix(l, "level "); ok {
			lines = append(lines, rest)
		}
	}
	return strings.Join(out, ", "), strings.Join(lines, ", ")
}

func noted(notes []string, text string) bool {
	return slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, text) })
}

// TestLevelsAreRestored: the archived level of a subject, and of one that is only referred to, where it has none of its own; one of its own stays, the
// registry's too; a plan changes nothing; again nothing changes.
func TestLevelsAreRestored(t *testing.T) {
	f := fake(t)
	f.SetLevel("mine-value", "NONE")
	f.SetLevel("none-value", "FORWARD")
	f.SetLevel("users-value", "FULL")
	wants := wanted(t, []segment.Schema{trip(7), plain(4, "users-value", 1, "User"), plain(5, "mine-value", 1, "Mine"), plain(6, "none-value", 1, "None"),
		plain(10, "late-value", 1, "Late"), plain(11, "", 0, "Nobody")})
	archived := levels("FULL", "trips-value", "FULL_TRANSITIVE", "zone", "NONE", "area", "", "users-value", "FULL", "mine-value", "FORWARD", "none-value", "", "other", "FULL")
	r := newRestorer(t, f.URL)
	r.Levels = archived
	plan, err := r.Plan(t.Context(), wants)
	if err != nil {
		t.Fatal(err)
	}
	const before = "mine-value NONE, none-value FORWARD, users-value FULL"
	decided := "mine-value FORWARD leave NONE, trips-value FULL_TRANSITIVE set, users-value FULL keep, zone NONE set"
	if planned, held := levelsOf(plan, f); planned != decided || held != before {
		t.Errorf("planned %s; held %s", planned, held)
	}
	done, err := r.Restore(t.Context(), wants)
	if err != nil {
		t.Fatal(err)
	}
	const after = "mine-value NONE, none-value FORWARD, trips-value FULL_TRANSITIVE, users-value FULL, zone NONE"
	if restored, held := levelsOf(done, f); restored != decided || held != after {
		t.Errorf("restored %s; held %s", restored, held)
	}
	for _, p := range []*job.RegistryPlan{plan, done} {
		if len(p.Notes) != 3 || !noted(p.Notes, "mine-value has the compatibility level NONE") || !noted(p.Notes, "1 subjects are not in the archive, the registry's own hold: late-value") ||
			!noted(p.Notes, "as a whole is BACKWARD and was FULL") {
			t.Errorf("notes %q", p.Notes)
		}
	}
	for _, c := range f.Calls() {
		if c == "PUT /config" || c == "PUT /config/mine-value" {
			t.Error(c)
		}
	}
	if notes, err := r.Verify(t.Context(), done); err != nil || len(notes) > 0 {
		t.Errorf("%v, %v", notes, err)
	}
	again := newRestorer(t, f.URL)
	again.Levels = archived
	repeated, err := again.Restore(t.Context(), wants)
	if err != nil {
		t.Fatal(err)
	}
	if restored, held := levelsOf(repeated, f); restored != strings.ReplaceAll(decided, " set", " keep") || held != after {
		t.Errorf("again %s; held %s", restored, held)
	}
	// One that somebody changes is theirs; one that is gone is missed.
	f.SetLevel("zone", "BACKWARD")
	if notes, err := r.Verify(t.Context(), done); err != nil || !noted(notes, "zone was given the compatibility level NONE, and has been changed to BACKWARD") {
		t.Errorf("%v, %v", notes, err)
	}
	f.SetLevel("trips-value", "")
	if _, err := r.Verify(t.Context(), done); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "PUT /config/trips-value") {
		t.Error(err)
	}
}

// TestLevelsComeLast: levels are set when every schema is registered and the modes are back.
func TestLevelsComeLast(t *testing.T) {
	f := fake(t)
	r := newRestorer(t, f.URL)
	r.Levels = levels("BACKWARD", "trips-value", "FULL", "zone", "FULL")
	if _, err := r.Restore(t.Context(), wanted(t, []segment.Schema{trip(7)})); err != nil {
		t.Fatal(err)
	}
	calls := f.Calls()
	first := slices.IndexFunc(calls, func(c string) bool { return strings.HasPrefix(c, "PUT /config/") })
	if first < 0 || slices.ContainsFunc(calls[first:], func(c string) bool { return strings.Contains(c, "/mode") || strings.HasSuffix(c, "/versions") }) {
		t.Errorf("calls %q", calls)
	}
}

// TestLevelsThatCannotBeSet: nothing archived, a registry without levels, and one that refuses one: it is told, and the schemas are there.
func TestLevelsThatCannotBeSet(t *testing.T) {
	wants := wanted(t, []segment.Schema{plain(4, "users-value", 1, "User")})
	for name, c := range map[string]struct {
		levels  *archive.LevelSnapshot
		prepare func(f *schematest.Registry)
		action  string
		note    string
	}{
		"not archived": {nil, nil, "", "the archive holds no compatibility levels"},
		"no route": {levels("", "users-value", "FULL"), func(f *schematest.Registry) {
			f.Hook(func(_, path string) int {
				if strings.HasPrefix(path, "/config") {
					return 404
				}
				return 0
			})
		}, "", "the registry has no compatibility levels"},
		"read-only": {levels("BACKWARD", "users-value", "FULL"), func(f *schematest.Registry) { f.SetMode("users-value", "READONLY") }, "users-value FULL refused", "Subject users-value is in read-only mode"},
	} {
		f := fake(t)
		if c.prepare != nil {
			c.prepare(f)
		}
		r := newRestorer(t, f.URL)
		r.Levels = c.levels
		done, err := r.Restore(t.Context(), wants)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		planned, held := levelsOf(done, f)
		if planned != c.action || held != "" || !noted(done.Notes, c.note) || !strings.Contains(f.Dump(), "users-value v1 id 4") {
			t.Errorf("%s: %s; notes %q; registry:\n%s", name, planned, done.Notes, f.Dump())
		}
		if _, err := r.Verify(t.Context(), done); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLevelsAtARealRegistry: at TAPEDECK_TEST_REGISTRY, where there is one, twice.
func TestLevelsAtARealRegistry(t *testing.T) {
	url := os.Getenv("TAPEDECK_TEST_REGISTRY")
	if url == "" {
		t.Skip("TAPEDECK_TEST_REGISTRY names no registry: scripts/real/run.sh starts one")
	}
	subject := "levels-" + rand.Text()[:8]
	for _, action := range []string{job.LevelSet, job.LevelKept} {
		r := newRestorer(t, url)
		r.Levels = levels("BACKWARD", subject, "FULL_TRANSITIVE")
		done, err := r.Restore(t.Context(), wanted(t, []segment.Schema{plain(7004, subject, 1, "User"+subject[7:])}))
		if err != nil {
			t.Fatal(err)
		}
		if len(done.Levels) != 1 || done.Levels[0].Action != action {
			t.Errorf("%+v, want %s", done.Levels, action)
		}
		if _, err := r.Verify(t.Context(), done); err != nil {
			t.Error(err)
		}
	}
}

func TestArchivedLevels(t *testing.T) {
	st := mem.New()
	a := archive.Open(st, "topics")
	if s, err := ArchivedLevels(t.Context(), a); s != nil || err != nil {
		t.Errorf("none: %+v, %v", s, err)
	}
	want := levels("BACKWARD", "a", "FULL")
	want.Time = 7
	if err := a.KeepLevels(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	if s, err := ArchivedLevels(t.Context(), a); err != nil || !s.Same(want) {
		t.Errorf("%+v, %v", s, err)
	}
	st.Put(archive.FormatLevelsName(8), []byte("x"))
	if _, err := ArchivedLevels(t.Context(), a); !errors.Is(err, ErrRefused) {
		t.Errorf("damaged: %v", err)
	}
}
