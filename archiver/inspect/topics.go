package inspect

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"tapedeck.dev/tapedeck/shared/archive"
)

// Topics writes one entry per topic (of those named; all where none is) whose configuration the archive holds.
func Topics(ctx context.Context, w io.Writer, a *archive.Archive, topics []string, format string) error {
	all, err := a.Topics(ctx)
	if err != nil {
		return err
	}
	shown := make([]archive.TopicInfo, 0, len(all))
	for _, t := range all {
		if len(topics) == 0 || slices.Contains(topics, t.Topic) {
			shown = append(shown, t)
		}
	}
	for _, name := range topics {
		if !slices.ContainsFunc(shown, func(t archive.TopicInfo) bool { return t.Topic == name }) {
			return fmt.Errorf("no configuration of topic %s in the archive", name)
		}
	}
	if format == JSON {
		return writeJSON(w, shown)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TOPIC\tID\tPARTITIONS\tREPLICATION\tCONFIGURATION")
	for _, i := range shown {
		config := []string{}
		for _, k := range slices.Sorted(maps.Keys(i.Config)) {
			config = append(config, k+"="+i.Config[k])
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\n", i.Topic, i.TopicID, i.Partitions, i.ReplicationFactor, orDash(strings.Join(config, ", ")))
	}
	return t.Flush()
}
