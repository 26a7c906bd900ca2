package replayer

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/shared/record"
)

// What was planned with keys or headers is never sent without: where an object of theirs is gone since, the job says which, or passes the range over if it may.
func TestForeignObjectsGoneSincePlanned(t *testing.T) {
	for _, part := range []string{".avro", ".keys.avro", ".headers.json"} {
		for _, skip := range []bool{false, true} {
			name := map[bool]string{false: "fails", true: "passed over"}[skip]
			t.Run(strings.Trim(part, ".")+" "+name, func(t *testing.T) {
				f := newForeign(t)
				f.put(t, 0, 0, 5)
				key := f.put(t, 0, 5, 5)
				gone := strings.TrimSuffix(key, ".avro") + part
				var once sync.Once
				var removed atomic.Bool
				f.rc.Before = func(method, path string) int {
					if method == "PUT" && !strings.Contains(path, "/segments/") { // the session is opened: planned, and not read yet
						once.Do(func() { removed.Store(f.st.Delete(gone)) })
					}
					return 0
				}
				request := `{"name":"x","target":"proc","promise":"recompute"}`
				if skip {
					request = strings.TrimSuffix(request, "}") + `,"onUnreadable":"skip"}`
				}
				v := ended(t, serve(t, f.sets...), request)
				if !removed.Load() {
					t.Fatalf("there was no %s", gone)
				}
				if !skip {
					if v.State != job.Failed || !strings.Contains(v.Error, gone) || !strings.Contains(v.Error, "gone from the archive") {
						t.Errorf("%s: %s", v.State, v.Error)
					}
					return
				}
				if v.State != job.Completed || len(v.Gaps) != 1 || v.Gaps[0].Key != key || v.Gaps[0].From != 5 || !strings.Contains(v.Gaps[0].Reason, gone) {
					t.Fatalf("%s: %s %+v", v.State, v.Error, v.Gaps)
				}
				var got []int64
				for _, r := range f.rc.Taken("x", record.TopicPartition{Topic: "trips"}) {
					got = append(got, r.Offset)
				}
				if want := []int64{0, 1, 2, 3, 4}; !slices.Equal(got, want) {
					t.Errorf("offsets %v, want %v", got, want)
				}
			})
		}
	}
}
