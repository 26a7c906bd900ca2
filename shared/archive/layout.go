package archive

import (
	"fmt"

	"tapedeck.dev/tapedeck/shared/record"
)

// Folders of what is not a segment.
const (
	dir      = "_tapedeck/"
	probeDir = dir + "probe/"
	indexDir = dir + "index/"
	gapsDir  = dir + "gaps/"

	incarnationsDir = dir + "incarnations/"
)

func indexPrefix(tp record.TopicPartition) string {
	return fmt.Sprintf("%s%s/%d/", indexDir, tp.Topic, tp.Partition)
}

func gapsPrefix(tp record.TopicPartition) string {
	return fmt.Sprintf("%s%s/%d/", gapsDir, tp.Topic, tp.Partition)
}
