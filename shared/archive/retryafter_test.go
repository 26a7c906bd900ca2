package archive

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/shared/store"
)

// slow is a failure that asks to be left alone.
type slow struct {
	error
	after time.Duration
}

func (e slow) Unwrap() error             { return e.error }
func (e slow) RetryAfter() time.Duration { return e.after }

// What the store asks for is waited for once, before the next call of any kind, with the jitter before the next put; and no longer than
// five minutes.
func TestCreateHonoursRetryAfter(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want []time.Duration
	}{
		"503":          {slow{err503, 7 * time.Second}, []time.Duration{7 * time.Second, 100 * time.Millisecond}},
		"429, an hour": {slow{err503, time.Hour}, []time.Duration{store.MaxRetryAfter, 100 * time.Millisecond}},
		"403":          {slow{err403, 7 * time.Second}, []time.Duration{7*time.Second + 100*time.Millisecond}},
		"wrapped":      {fmt.Errorf("again: %w", slow{err503, time.Second}), []time.Duration{time.Second, 100 * time.Millisecond}},
		"not asked":    {err503, []time.Duration{100 * time.Millisecond}},
		"nonsense":     {slow{err503, -time.Second}, []time.Duration{100 * time.Millisecond}},
	} {
		a, st := open(t)
		var waits []time.Duration
		var calls *[]string
		sleepless := a.wait.sleep
		a.wait.sleep = func(ctx context.Context, d time.Duration) error {
			waits = append(waits, d)
			if len(waits) == 1 && !slices.Equal(*calls, []string{opPut}) && len(c.want) == 2 {
				t.Errorf("%s: calls %v before the wait", name, *calls)
			}
			return sleepless(ctx, d)
		}
		calls = answers(st, c.err)
		h, data := encode(t, trips, nil, cut{next: 5})
		told := 0
		if _, err := a.Create(t.Context(), h, data, RetryPolicy{OnRetry: func(_ string, _ int, err error) {
			if told++; !errors.Is(err, c.err) {
				t.Errorf("%s: told of %v", name, err)
			}
		}}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(waits, c.want) || told != 1 {
			t.Errorf("%s: waited %v, want %v; told %d times", name, waits, c.want, told)
		}
	}
}
