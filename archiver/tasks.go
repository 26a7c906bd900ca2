package archiver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
)

// Tasks are the archivers of one process, each a member of the group with a consumer and a poll loop of its own. One loop keeps one core busy; where a
// process has more of them, more tasks use them. To the group, and to the chain, they are what as many processes would be: nothing but memory, limits, store,
// registry and the HTTP service is shared. So no rule of the archive knows of tasks.
type Tasks struct{ all []*Archiver }

// NewTasks makes set.Tasks archivers (one, where it is 0) that share set's bounds of the process; they connect to nothing.
func NewTasks(set Settings, p Parts) (*Tasks, error) {
	t := &Tasks{}
	for i := range max(1, set.Tasks) {
		own := p
		if set.Tasks > 1 {
			own.Metrics = prometheus.WrapRegistererWith(prometheus.Labels{"task": strconv.Itoa(i)}, p.Metrics)
			own.Log = p.Log.With(zap.Int("task", i))
		}
		a, err := New(set.ofTask(i), own)
		if err != nil {
			return nil, err
		}
		t.all = append(t.all, a)
	}
	return t, nil
}

// ofTask are the settings of one task: the process's bounds per second are shared out evenly, as the group does with partitions. Memory is
// shared out where it is budgeted.
func (s Settings) ofTask(i int) Settings {
	n := int64(s.Tasks)
	if n <= 1 {
		return s
	}
	part := func(total int64) int64 { return (total + n - 1) / n }
	s.Limit.Records, s.Limit.Bytes = part(s.Limit.Records), part(s.Limit.Bytes)
	s.MaxLabelled = int(part(int64(s.MaxLabelled)))
	// A static member is one consumer.
	if id := s.Consumer["group.instance.id"]; id != "" {
		s.Consumer = maps.Clone(s.Consumer)
		s.Consumer["group.instance.id"] = fmt.Sprintf("%s-%d", id, i)
	}
	return s
}

// Archive runs all tasks until ctx ends. Where one cannot go on, all end.
func (t *Tasks) Archive(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, a := range t.all {
		g.Go(func() error { return a.Archive(ctx) })
	}
	return g.Wait()
}

// Status is that of all tasks together.
func (t *Tasks) Status() Status {
	s := t.all[0].Status()
	for _, a := range t.all[1:] {
		o := a.Status()
		s.Degraded = append(s.Degraded, slices.DeleteFunc(o.Degraded, func(d string) bool { return slices.Contains(s.Degraded, d) })...)
		s.Assigned = s.Assigned && o.Assigned
		s.MemoryBytes += o.MemoryBytes
		s.MemoryHeld = s.MemoryHeld || o.MemoryHeld
		s.RateHolds += o.RateHolds
		s.GroupError = cmp.Or(s.GroupError, o.GroupError)
		s.Partitions = append(s.Partitions, o.Partitions...)
	}
	slices.SortFunc(s.Partitions, func(a, b PartitionStatus) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return s
}

// Ready is nil where every task is ready; one to which the group gives no partition is.
func (t *Tasks) Ready() error { return t.first((*Archiver).Ready) }

// Health is nil where every task is healthy.
func (t *Tasks) Health() error { return t.first((*Archiver).Health) }

func (t *Tasks) first(check func(*Archiver) error) error {
	for i, a := range t.all {
		if err := check(a); err != nil && len(t.all) > 1 {
			return fmt.Errorf("task %d: %w", i, err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// Register adds every route to mux.
func (t *Tasks) Register(mux *http.ServeMux) {
	for _, r := range t.Routes() {
		mux.HandleFunc(r.Method+" "+r.Path, r.handle)
	}
}

// command runs f in every poll loop. What one task does not have another may: only where none has it, that is the answer.
func (t *Tasks) command(ctx context.Context, f func(*loop) error) error {
	var missing, failed error
	had := false
	for i, a := range t.all {
		switch err := a.command(ctx, f); {
		case err == nil:
			had = true
		case errors.Is(err, errNoSuch):
			missing = err
		case len(t.all) > 1:
			failed = errors.Join(failed, fmt.Errorf("task %d: %w", i, err)) // the others obey all the same
		default:
			return err
		}
	}
	switch {
	case failed != nil:
		return failed
	case had:
		return nil
	}
	return missing
}
