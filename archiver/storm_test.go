package archiver

import (
	"bytes"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/shared/store/mem"
)

const (
	stormParts = 4
	stormTurns = 20
	stormTotal = 100_000
	stormFlush = 5_000
)

// storm archives 100,000 records in slices; after each the hook disturbs whoever has just fetched all of it, so that nobody lives as long as a
// segment takes. Then the archive must be the one of a run that nobody disturbed, object by object and byte by byte.
func storm(t *testing.T, disturb func(e *env, turn int, fetched func() bool)) {
	if testing.Short() {
		t.Skip("100,000 records, twenty times")
	}
	e := newEnv(t)
	e.topic("trips", stormParts)
	p := e.producer("")
	const slice = stormTotal / stormTurns / stormParts
	for turn := range stormTurns {
		for part := range int32(stormParts) {
			e.send(p, "trips", part, numbered(turn*slice, slice)...)
		}
		produced := int64(turn+1) * slice
		disturb(e, turn, func() bool {
			for part := range int32(stormParts) {
				if hs := e.headers("trips", part); produced >= stormFlush && (len(hs) == 0 || hs[len(hs)-1].Next < produced/stormFlush*stormFlush) {
					return false
				}
			}
			return true
		})
	}
	e.checkClean()
	stormy := e.store

	e.store = mem.New()
	s := e.settings("trips")
	s.Group, s.Partition.Rule.FlushSize = "undisturbed", stormFlush
	r := e.start(s)
	for part := range int32(stormParts) {
		e.awaitArchived("trips", part, stormTotal/stormParts)
	}
	r.end()
	segments := 0
	for part := range int32(stormParts) {
		keys := e.objects("trips", part)
		segments += len(keys)
		for _, k := range keys {
			want, err := e.store.Get(e.ctx(), k)
			if err != nil {
				t.Fatal(err)
			}
			got, err := stormy.Get(e.ctx(), k)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s differs from an undisturbed run's: %v", k, err)
			}
		}
	}
	undisturbed := e.store
	e.store = stormy
	n := 0
	for part := range int32(stormParts) {
		n += len(e.objects("trips", part))
	}
	e.store = undisturbed
	t.Logf("segments per %d records: %d, undisturbed %d", stormTotal, n, segments)
	if n != segments || segments != stormTotal/stormFlush {
		t.Errorf("%d segments, undisturbed %d, want %d", n, segments, stormTotal/stormFlush)
	}
}

func TestARestartStormDoesNotShatterTheArchive(t *testing.T) {
	t.Parallel()
	var fetched int64
	storm(t, func(e *env, turn int, archived func() bool) {
		s := e.settings("trips")
		s.Partition.Rule.FlushSize = stormFlush
		r := e.start(s)
		fetched += stormTotal / stormTurns
		e.await("everything is fetched", func() bool {
			var sum int64
			for _, p := range r.Status().Partitions {
				sum += p.Position
			}
			return sum == fetched && archived()
		})
		r.end()
	})
}

func TestARebalanceStormDoesNotShatterTheArchive(t *testing.T) {
	t.Parallel()
	var stays *running
	var fetched int64
	storm(t, func(e *env, turn int, archived func() bool) {
		s := e.settings("trips")
		s.Partition.Rule.FlushSize = stormFlush
		if stays == nil {
			stays = e.start(s)
			e.await("it owns all", func() bool { return len(stays.Status().Partitions) == stormParts })
		}
		// One joins and takes half, in the next turn it leaves and gives it back: a rebalance each turn.
		both := []*running{stays}
		if turn%2 == 1 {
			guest := e.start(s)
			e.await("half is taken", func() bool {
				return len(guest.Status().Partitions) == stormParts/2 && len(stays.Status().Partitions) == stormParts/2
			})
			both = append(both, guest)
			defer guest.end()
		}
		fetched += stormTotal / stormTurns
		e.await("everything is fetched", func() bool {
			var sum int64
			for _, r := range both {
				for _, p := range r.Status().Partitions {
					sum += p.Position
				}
			}
			return sum == fetched && archived()
		})
	})
}

// Quiet partitions are flushed by the wall clock alone, too.
func TestAQuietPartitionIsFlushedBySchedule(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.topic("trips", 1)
	e.fill("trips", 0, 0, 5)
	s := e.settings("trips")
	s.Partition.RotateAge, s.Schedule = 0, 500*time.Millisecond
	r := e.start(s)
	e.awaitArchived("trips", 0, 5)
	e.fill("trips", 0, 5, 3)
	e.awaitArchived("trips", 0, 8)
	r.end()
	if got, want := r.metric("tapedeck_archiver_segments_total"), float64(len(e.headers("trips", 0))); got != want {
		t.Errorf("%v segments counted, want %v", got, want)
	}
}
