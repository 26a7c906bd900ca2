package registry

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/sr/srfake"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/shared/schema"
	"tapedeck.dev/tapedeck/shared/schema/schematest"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store/mem"
)

func avro(name string) string {
	return fmt.Sprintf(`{"type":"record","name":"%s","fields":[{"name":"id","type":"long"}]}`, name)
}

func plain(id int, subject string, version int, name string) segment.Schema {
	return segment.Schema{ID: id, Type: "AVRO", Text: avro(name), Subject: subject, Version: version}
}

// trip refers to Zone, and Zone to Area.
func trip(id int) segment.Schema {
	area := segment.Reference{Name: "Area", Subject: "area", Version: 2}
	zone := segment.Reference{Name: "Zone", Subject: "zone", Version: 1}
	const zoneText = `{"type":"record","name":"Zone","fields":[{"name":"area","type":"Area"}]}`
	return segment.Schema{ID: id, Type: "AVRO", Subject: "trips-value", Version: 3,
		Text: `{"type":"record","name":"Trip","fields":[{"name":"zone","type":"Zone"}]}`,
		References: []segment.Reference{
			{Name: "Area", Subject: "area", Version: 2, Text: avro("Area"), Indirect: true},
			{Name: "Zone", Subject: zone.Subject, Version: zone.Version, Text: zoneText, References: []segment.Reference{area}},
		}}
}

func wanted(t *testing.T, segments ...[]segment.Schema) []Want {
	t.Helper()
	w := newWants()
	for _, s := range segments {
		w.add("trips", s)
	}
	list, err := w.list()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func newRestorer(t *testing.T, url string) *Restorer {
	t.Helper()
	reg, err := schema.NewRegistry(schema.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	return &Restorer{Registry: reg, URL: url, Modes: Modes{Store: mem.New(), JobID: "J"}}
}

// said is what became of each schema with an id, "id subject → to version action".
func said(p *job.RegistryPlan) []string {
	var out []string
	for _, s := range p.Schemas {
		out = append(out, fmt.Sprintf("%d %s → %d v%d %s", s.ID, s.Subject, s.To, s.ToVersion, s.Action))
	}
	return out
}

func fake(t *testing.T) *schematest.Registry {
	r := schematest.New()
	t.Cleanup(r.Close)
	return r
}

func TestRestoreIntoAnEmptyRegistry(t *testing.T) {
	f := fake(t)
	r := newRestorer(t, f.URL)
	wants := wanted(t, []segment.Schema{trip(7), plain(4, "users-value", 2, "User")}, []segment.Schema{{ID: -1, GUID: "g", Type: "AVRO", Text: avro("User")}})
	plan, err := r.Plan(t.Context(), wants)
	if err != nil {
		t.Fatal(err)
	}
	if got := f.Dump(); got != "" {
		t.Fatalf("a plan changed the registry:\n%s", got)
	}
	done, err := r.Restore(t.Context(), wants)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"4 users-value → 4 v2 import", "-1 area → 8 v2 import", "-1 zone → 9 v1 import", "7 trips-value → 7 v3 import"}
	if got := said(done); !slices.Equal(got, want) || !slices.Equal(said(plan), want) || !done.Import || len(done.Rewritten) > 0 {
		t.Errorf("%v, planned %v, want %v; %+v", got, said(plan), want, done)
	}
	held := strings.Join([]string{
		"area v2 id 8 " + avro("Area"),
		`trips-value v3 id 7 {"type":"record","name":"Trip","fields":[{"name":"zone","type":"Zone"}]} → zone v1`,
		"users-value v2 id 4 " + avro("User"),
		`zone v1 id 9 {"type":"record","name":"Zone","fields":[{"name":"area","type":"Area"}]} → area v2`,
	}, "\n")
	if got := f.Dump(); got != held {
		t.Errorf("registry:\n%s\nwant:\n%s", got, held)
	}
	if _, err := r.Verify(t.Context(), done); err != nil {
		t.Error(err)
	}
	if _, err := newRestorer(t, fake(t).URL).Verify(t.Context(), done); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "id 7") {
		t.Errorf("in another registry: %v", err)
	}
	// Again, by another job: nothing changes.
	again := newRestorer(t, f.URL)
	done, err = again.Restore(t.Context(), wants)
	if err != nil || f.Dump() != held {
		t.Errorf("again: %v\n%s", err, f.Dump())
	}
	for _, s := range done.Schemas {
		if s.Action != job.SchemaKept {
			t.Errorf("again: %+v", s)
		}
	}
}

// TestTakenIDs: an id that is another schema's, live or softly deleted, is found before anything is changed; the records' schema gets another.
func TestTakenIDs(t *testing.T) {
	f := fake(t)
	f.Seed("other", 1, 7, schematest.Schema{Schema: avro("Other")})
	f.Seed("gone", 1, 8, schematest.Schema{Schema: avro("Gone")})
	f.Delete("gone", 1)
	f.Seed("back-value", 1, 9, schematest.Schema{Schema: avro("Back")})
	f.Delete("back-value", 1)
	f.Seed("fresh", 1, 13, schematest.Schema{Schema: avro("Fresh")})
	before := f.Dump()
	wants := wanted(t, []segment.Schema{plain(7, "a-value", 1, "A"), plain(8, "b-value", 1, "B"), plain(9, "back-value", 1, "Back"), plain(12, "c-value", 1, "C")})

	strict := newRestorer(t, f.URL)
	strict.SameIDs = true
	if _, err := strict.Restore(t.Context(), wants); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "id 7") {
		t.Errorf("same ids: %v", err)
	}
	if got := f.Dump(); got != before {
		t.Fatalf("refused, and changed the registry:\n%s", got)
	}

	r := newRestorer(t, f.URL)
	plan, err := r.Plan(t.Context(), wants)
	if err != nil {
		t.Fatal(err)
	}
	done, err := r.Restore(t.Context(), wants)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"7 a-value → 14 v1 import", "8 b-value → 15 v1 import", "9 back-value → 9 v1 import", "12 c-value → 12 v1 import"}
	if got := said(done); !slices.Equal(got, want) || !slices.Equal(said(plan), want) {
		t.Errorf("%v, planned %v", got, said(plan))
	}
	if got := done.Rewritten["trips"]; !slices.Equal(got, []job.IDChange{{From: 7, To: 14}, {From: 8, To: 15}}) {
		t.Errorf("rewritten: %v", got)
	}
	if why := done.Schemas[1].Why; !strings.Contains(why, "softly deleted") {
		t.Errorf("why: %q", why)
	}
	for _, line := range strings.Split(before, "\n") {
		if !strings.Contains(f.Dump(), line) && !strings.HasPrefix(line, "back-value") {
			t.Errorf("%q is gone:\n%s", line, f.Dump())
		}
	}
}

// TestTwoMeanings: of two schemas that had one id, the one that more segments name keeps it; again and again.
func TestTwoMeanings(t *testing.T) {
	f := fake(t)
	a, b := plain(7, "trips-value", 1, "Old"), plain(7, "trips-value", 1, "New")
	wants := wanted(t, []segment.Schema{a}, []segment.Schema{b}, []segment.Schema{b})
	for range 3 {
		done, err := newRestorer(t, f.URL).Restore(t.Context(), wants)
		if err != nil {
			t.Fatal(err)
		}
		to := map[string]int{}
		for _, s := range done.Schemas {
			to[s.Fingerprint] = s.To
		}
		if to[b.Fingerprint()] != 7 || to[a.Fingerprint()] != 8 {
			t.Errorf("%v\n%s", said(done), f.Dump())
		}
	}
	if n := strings.Count(f.Dump(), "\n"); n != 1 {
		t.Errorf("registry:\n%s", f.Dump())
	}
	// Where the registry has one of them already, that one keeps the id.
	g := fake(t)
	g.Seed("trips-value", 1, 7, schematest.Schema{Schema: a.Text})
	done, err := newRestorer(t, g.URL).Restore(t.Context(), wants)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range done.Schemas {
		if want := map[string]int{a.Fingerprint(): 7, b.Fingerprint(): 8}[s.Fingerprint]; s.To != want {
			t.Errorf("%+v, want %d", s, want)
		}
	}
}

// TestKilledAnywhere: at each request in turn the registry is gone for good for the first replayer; the next one makes the same registry of it,
// with the modes that there were and the levels that were archived.
func TestKilledAnywhere(t *testing.T) {
	segments := []segment.Schema{trip(7), plain(4, "users-value", 2, "User"), plain(5, "taken-value", 1, "Taken")}
	prepare := func() *schematest.Registry {
		f := fake(t)
		f.Seed("other", 1, 5, schematest.Schema{Schema: avro("Other")})
		f.SetMode("users-value", "READONLY")
		return f
	}
	archived := levels("BACKWARD", "trips-value", "FULL", "taken-value", "FORWARD", "zone", "NONE", "users-value", "")
	undisturbed := prepare()
	r := newRestorer(t, undisturbed.URL)
	r.Levels = archived
	done, err := r.Restore(t.Context(), wanted(t, segments))
	if err != nil {
		t.Fatal(err)
	}
	want, calls := undisturbed.Dump(), len(undisturbed.Calls())
	if !strings.HasPrefix(want, "level taken-value FORWARD\nlevel trips-value FULL\nlevel zone NONE\nmode users-value READONLY\n") || strings.Contains(want, "IMPORT") {
		t.Fatalf("modes:\n%s", want)
	}
	inImport := 0
	for n := range calls {
		f := prepare()
		seen := 0
		f.Hook(func(string, string) int {
			if seen++; seen > n {
				return 503
			}
			return 0
		})
		first := newRestorer(t, f.URL)
		first.Levels = archived
		if _, err := first.Restore(t.Context(), wanted(t, segments)); err == nil {
			t.Fatalf("killed at %d of %d: no error", n, calls)
		}
		f.Hook(nil)
		if strings.Contains(f.Dump(), "IMPORT") {
			inImport++
		}
		second := newRestorer(t, f.URL)
		second.Modes, second.Levels = first.Modes, archived // the store
		again, err := second.Restore(t.Context(), wanted(t, segments))
		if err != nil {
			t.Fatalf("killed at %d of %d: %v", n, calls, err)
		}
		if got := f.Dump(); got != want {
			t.Errorf("killed at %d of %d:\n%s\nwant:\n%s", n, calls, got, want)
		}
		if !maps.EqualFunc(again.Rewritten, done.Rewritten, slices.Equal) {
			t.Errorf("killed at %d of %d: %v, want %v", n, calls, again.Rewritten, done.Rewritten)
		}
	}
	if inImport == 0 {
		t.Error("no kill left a subject in IMPORT")
	}
}

// TestPutBackAlone: what a killed restore left is put back without another restore (a job that is cancelled).
func TestPutBackAlone(t *testing.T) {
	f := fake(t)
	r := newRestorer(t, f.URL)
	f.Hook(func(method, path string) int {
		if method == "POST" && strings.HasSuffix(path, "/versions") || method == "DELETE" {
			return 503
		}
		return 0
	})
	if _, err := r.Restore(t.Context(), wanted(t, []segment.Schema{plain(7, "a-value", 1, "A")})); !errors.Is(err, schema.ErrUnavailable) {
		t.Fatal(err)
	}
	if got := f.Dump(); got != "mode a-value IMPORT" {
		t.Fatalf("left: %q", got)
	}
	f.Hook(nil)
	if err := r.PutBack(t.Context()); err != nil || f.Dump() != "" {
		t.Errorf("%v, %q", err, f.Dump())
	}
	f.SetMode("a-value", "READONLY") // by somebody else
	if err := r.PutBack(t.Context()); err != nil || f.Dump() != "mode a-value READONLY" {
		t.Errorf("%v, %q", err, f.Dump())
	}
}

// TestRegistryThatIsInImport: a registry that is in the mode IMPORT as a whole stays so, and no subject gets a mode of its own.
func TestRegistryThatIsInImport(t *testing.T) {
	f := fake(t)
	f.SetMode("", "IMPORT")
	if _, err := newRestorer(t, f.URL).Restore(t.Context(), wanted(t, []segment.Schema{trip(7)})); err != nil {
		t.Fatal(err)
	}
	for _, c := range f.Calls() {
		if strings.HasPrefix(c, "PUT") || strings.HasPrefix(c, "DELETE") {
			t.Error(c)
		}
	}
}

// TestRegistryThatTakesNoIDs: one that says that it has an import mode and passes ids over (srfake), and one without modes (at TAPEDECK_TEST_REGISTRY):
// the registry's own ids are found out, for references too, and are the same when asked again.
func TestRegistryThatTakesNoIDs(t *testing.T) {
	embedded := srfake.New()
	t.Cleanup(embedded.Close)
	urls := map[string]string{"embedded": embedded.URL()}
	if url := os.Getenv("TAPEDECK_TEST_REGISTRY"); url != "" {
		urls["real"] = url
	}
	for name, url := range urls {
		wants := wanted(t, []segment.Schema{trip(7007), plain(7004, "users-value", 2, "User")})
		var last map[string][]job.IDChange
		for range 2 {
			r := newRestorer(t, url)
			done, err := r.Restore(t.Context(), wants)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if done.Import || len(done.Rewritten["trips"]) != 2 {
				t.Errorf("%s: %+v", name, done)
			}
			for i, s := range done.Schemas {
				got, err := r.Registry.ByID(t.Context(), s.To)
				if err != nil || !(schema.Draft{Type: got.Type, Text: got.Text}).SameText(wants[i].Draft) {
					t.Errorf("%s: %+v is %+v, %v", name, s, got, err)
				}
			}
			if last != nil && !maps.EqualFunc(last, done.Rewritten, slices.Equal) {
				t.Errorf("%s: again %v, first %v", name, done.Rewritten, last)
			}
			last = done.Rewritten
			if _, err := r.Verify(t.Context(), done); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			strict := newRestorer(t, url)
			strict.SameIDs = true
			if _, err := strict.Restore(t.Context(), wants); !errors.Is(err, ErrRefused) {
				t.Errorf("%s: same ids: %v", name, err)
			}
		}
	}
}

func TestReferenceThatIsNotThere(t *testing.T) {
	s := trip(7)
	s.References = s.References[1:] // without Area's text
	w := newWants()
	w.add("trips", []segment.Schema{s})
	if _, err := w.list(); err == nil || !strings.Contains(err.Error(), "area") {
		t.Error(err)
	}
}
