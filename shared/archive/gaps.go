package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
)

// span is a range of offsets [From, To).
type span struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// gapKey is the name of an accepted gap: _tapedeck/gaps/<topic>/<p>/<from, 20 digits>.
func gapKey(tp record.TopicPartition, from int64) string {
	return fmt.Sprintf("%s%020d", gapsPrefix(tp), from)
}

// AcceptGap records that the loss of the offsets [from, to) of a partition is known, so that verify no longer objects to
// it. Accepting the same range again is no error; another range from the same offset is (accept what is missing of it by
// a range of its own).
func (a *Archive) AcceptGap(ctx context.Context, tp record.TopicPartition, from, to int64) error {
	key := gapKey(tp, from)
	if from < 0 || to <= from {
		return fmt.Errorf("accept gap %s: [%d, %d) is no range of offsets", tp, from, to)
	}
	data, err := json.Marshal(span{from, to})
	if err != nil {
		return fmt.Errorf("accept gap %s: %w", key, err)
	}
	err = a.st.Create(ctx, key, data)
	if err == nil {
		return nil
	}
	if !errors.Is(err, store.ErrExists) {
		return fmt.Errorf("accept gap %s: %w", key, err)
	}
	have, err := a.acceptedGap(ctx, tp, key)
	if err != nil {
		return fmt.Errorf("accept gap %s: %w", key, err)
	}
	if have != (span{from, to}) {
		return fmt.Errorf("accept gap %s: [%d, %d) was accepted before; accept [%d, %d) in its place", key, have.From, have.To, have.To, to)
	}
	return nil
}

// accepted reads the accepted gaps of tp, ascending.
func (a *Archive) accepted(ctx context.Context, tp record.TopicPartition) ([]span, error) {
	var gaps []span
	err := eachObject(ctx, a.st, gapsPrefix(tp), func(o store.Object) error {
		g, err := a.acceptedGap(ctx, tp, o.Key)
		gaps = append(gaps, g)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read accepted gaps of %s: %w", tp, err)
	}
	return gaps, nil
}

func (a *Archive) acceptedGap(ctx context.Context, tp record.TopicPartition, key string) (span, error) {
	from, err := strconv.ParseInt(strings.TrimPrefix(key, gapsPrefix(tp)), 10, 64)
	if err != nil || key != gapKey(tp, from) {
		return span{}, fmt.Errorf("%w: %s is not the name of an accepted gap", ErrForeign, key)
	}
	data, err := a.st.Get(ctx, key)
	if err != nil {
		return span{}, err
	}
	var g span
	if err := json.Unmarshal(data, &g); err != nil || g.From != from || g.To <= g.From {
		return span{}, fmt.Errorf("%w: %s does not hold the range of its name: %.100q", ErrForeign, key, data)
	}
	return g, nil
}

// subtract returns what is left of [from, to) without the given ranges.
func subtract(from, to int64, without []span) []span {
	var left []span
	sorted := slices.SortedFunc(slices.Values(without), func(x, y span) int {
		if x.From < y.From {
			return -1
		}
		return 1
	})
	for _, w := range sorted {
		if w.To <= from || w.From >= to {
			continue
		}
		if w.From > from {
			left = append(left, span{from, w.From})
		}
		from = max(from, w.To)
	}
	if from < to {
		left = append(left, span{from, to})
	}
	return left
}

// gapsOf collects from the skipped ranges of consecutive segments those that report: clipped to [from, to), and
// neighbours of one class joined, since a writer that adopted another's segment may have cut a range in two.
func gapsOf(skips []segment.Skip, from, to int64, report func(segment.Class) bool) []segment.Skip {
	gaps := []segment.Skip{}
	for _, s := range skips {
		s.From, s.To = max(s.From, from), min(s.To, to)
		if s.From >= s.To || !report(s.Class) {
			continue
		}
		if k := len(gaps); k > 0 && gaps[k-1].To == s.From && gaps[k-1].Class == s.Class {
			gaps[k-1].To = s.To
			continue
		}
		gaps = append(gaps, s)
	}
	return gaps
}

func sortTPs(tps []record.TopicPartition) {
	slices.SortFunc(tps, func(x, y record.TopicPartition) int {
		switch {
		case x.Less(y):
			return -1
		case y.Less(x):
			return 1
		}
		return 0
	})
}
