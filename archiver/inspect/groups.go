package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"text/tabwriter"
	"time"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/store"
)

// Groups writes the newest positions of consumer groups at or before until: a time in RFC 3339 or in ms; the newest of all where "".
func Groups(ctx context.Context, w io.Writer, a *archive.Archive, until, format string) error {
	ms, err := parseTime(until)
	if err != nil {
		return fmt.Errorf("--until: %w", err)
	}
	s, err := a.Groups(ctx, ms)
	if errors.Is(err, store.ErrNotFound) {
		return errors.New("no positions of consumer groups so old in the archive; the archiver keeps them with groups or groups.regex set")
	}
	if err != nil {
		return err
	}
	if format == JSON {
		return writeJSON(w, s)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "AT\tGROUP\tTOPIC\tPARTITION\tOFFSET\tLEADER EPOCH\tMETADATA")
	for _, g := range s.Groups {
		for _, p := range g.Positions {
			metadata := "-"
			if p.Metadata != "" {
				metadata = strconv.Quote(p.Metadata)
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%d\t%s\n", timestamp(s.Time), g.Group, p.Topic, p.Partition, p.Offset, p.LeaderEpoch, metadata)
		}
	}
	return t.Flush()
}

func parseTime(s string) (int64, error) {
	if s == "" {
		return math.MaxInt64, nil
	}
	if ms, err := strconv.ParseInt(s, 10, 64); err == nil && ms >= 0 {
		return ms, nil
	}
	at, err := time.Parse(time.RFC3339Nano, s)
	if err != nil || at.UnixMilli() < 0 {
		return 0, fmt.Errorf("%q is no time: give 2026-01-02T15:04:05Z, or ms since 1970", s)
	}
	return at.UnixMilli(), nil
}
