package archive

import (
	"errors"
	"maps"
	"math"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/mem"
)

// TestLevels: the newest at or before a time, by one LIST of one key and one GET; a second one of the same time and one before 1970 are refused.
func TestLevels(t *testing.T) {
	st := mem.New()
	a := Open(st, "topics")
	if _, err := a.Levels(t.Context(), math.MaxInt64); !errors.Is(err, store.ErrNotFound) {
		t.Error(err)
	}
	at := func(ms int64, level string) *LevelSnapshot {
		return &LevelSnapshot{Time: ms, Global: "BACKWARD", Subjects: map[string]string{"trips-value": level, "users-value": ""}}
	}
	for ms, level := range map[int64]string{5: "FULL", 9: "NONE"} {
		if err := a.KeepLevels(t.Context(), at(ms, level)); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.KeepLevels(t.Context(), at(5, "FORWARD")); !errors.Is(err, store.ErrExists) {
		t.Errorf("a second one of the same time: %v", err)
	}
	if err := a.KeepLevels(t.Context(), at(-1, "FULL")); err == nil {
		t.Error("before 1970")
	}
	for until, want := range map[int64]string{4: "", 5: "FULL", 8: "FULL", 9: "NONE", math.MaxInt64: "NONE"} {
		st.ResetCounts()
		s, err := a.Levels(t.Context(), until)
		if want == "" {
			if !errors.Is(err, store.ErrNotFound) {
				t.Errorf("until %d: %v", until, err)
			}
			continue
		}
		if err != nil || !s.Same(at(0, want)) {
			t.Errorf("until %d: %+v, %v", until, s, err)
		}
		if n := st.Counts(); n["list"] != 1 || n["get"] != 1 || len(n) != 2 {
			t.Errorf("calls %v", n)
		}
	}
}

func TestLevelSnapshotsDiffer(t *testing.T) {
	make := func() *LevelSnapshot {
		return &LevelSnapshot{Time: 1, Global: "BACKWARD", Subjects: map[string]string{"a": "FULL", "b": ""}}
	}
	if s := make(); !s.Same(make()) {
		t.Error("no difference")
	}
	for name, change := range map[string]func(*LevelSnapshot){
		"global": func(s *LevelSnapshot) { s.Global = "NONE" }, "level": func(s *LevelSnapshot) { s.Subjects["b"] = "FULL" },
		"more": func(s *LevelSnapshot) { s.Subjects["c"] = "" }, "fewer": func(s *LevelSnapshot) { delete(s.Subjects, "b") },
	} {
		s := make()
		change(s)
		if s.Same(make()) {
			t.Error(name)
		}
	}
}

func TestDamagedLevels(t *testing.T) {
	good := mem.New()
	if err := Open(good, "topics").KeepLevels(t.Context(), &LevelSnapshot{Time: 7}); err != nil {
		t.Fatal(err)
	}
	data, err := good.Get(t.Context(), FormatLevelsName(7))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		key  string
		data []byte
	}{
		"another time": {FormatLevelsName(8), data}, "cut off": {FormatLevelsName(7), data[:len(data)-9]}, "not gzip": {FormatLevelsName(7), []byte("{}")},
		"name": {levelsDir + "x", data},
	} {
		st := mem.New()
		st.Put(c.key, c.data)
		if _, err := Open(st, "topics").Levels(t.Context(), math.MaxInt64); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), c.key) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSubjects: subjects of texts, and of what they refer to; a text is read once.
func TestSubjects(t *testing.T) {
	st := mem.New()
	a := Open(st, "topics")
	keep := func(s segment.Schema) {
		t.Helper()
		if err := a.KeepSchema(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	zone := segment.Reference{Name: "Zone", Subject: "zone", Version: 1, Text: `"long"`}
	keep(segment.Schema{ID: 7, Type: "AVRO", Text: `"int"`, Subject: "trips-value", Version: 1})
	keep(segment.Schema{ID: -1, GUID: "a", Type: "AVRO", Text: `"Zone"`, References: []segment.Reference{zone}})
	subjects, read := map[string]bool{}, map[string]bool{}
	look := func(gets int, want ...string) {
		t.Helper()
		st.ResetCounts()
		if err := a.Subjects(t.Context(), subjects, read); err != nil {
			t.Fatal(err)
		}
		all := map[string]bool{}
		for _, s := range want {
			all[s] = true
		}
		if n := st.Counts(); !maps.Equal(subjects, all) || n["list"] != 2 || n["get"] != gets {
			t.Errorf("%v, want %v; calls %v", subjects, want, n)
		}
	}
	look(2, "trips-value", "zone")
	look(0, "trips-value", "zone")
	keep(segment.Schema{ID: 7, Type: "AVRO", Text: `"string"`, Subject: "users-value", Version: 1}) // another meaning
	look(1, "trips-value", "zone", "users-value")
}

func FuzzLevelsName(f *testing.F) {
	f.Add(FormatLevelsName(1_700_000_000_000))
	f.Add(levelsDir + "1+2.json.gz")
	f.Fuzz(func(t *testing.T, key string) {
		if ms, err := ParseLevelsName(key); err == nil && FormatLevelsName(ms) != key {
			t.Fatalf("%q is not %q", key, FormatLevelsName(ms))
		}
	})
}
