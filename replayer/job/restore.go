package job

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// What a restore does with a target that holds records already.
const (
	NotEmptyFails  = "fail"
	NotEmptyAppend = "append"
)

// maxReplication bounds replicationFactor (Kafka's own type is an int16).
const maxReplication = math.MaxInt16

// RestoreFields of a request are for targets of type kafka alone.
type RestoreFields struct {
	// TopicMapping is archived topic → topic at the target; a topic that is not named keeps its name.
	TopicMapping map[string]string `json:"topicMapping,omitempty"`
	// PartitionMapping is archived "topic/partition" → partition at the target; a partition that is not named keeps its number.
	PartitionMapping  map[string]int32 `json:"partitionMapping,omitempty"`
	CreateTopics      bool             `json:"createTopics,omitempty"`      // create missing topics from the archived configuration
	ReplicationFactor int              `json:"replicationFactor,omitempty"` // of created topics; 0: as archived
	IfNotEmpty        string           `json:"ifNotEmpty,omitempty"`        // "" (fail) or append
	ProvenanceHeaders bool             `json:"provenanceHeaders,omitempty"` // add where a record was
	// Groups are the consumer groups whose archived positions are restored with the topics; nil: none.
	Groups *Groups `json:"groups,omitempty"`
	// Registry is what becomes of the target's schema registry: "" (none), restore or same-ids.
	Registry string `json:"registry,omitempty"`
}

// canonical brings equal requests into one form.
func (f *RestoreFields) canonical() {
	if f.IfNotEmpty == NotEmptyFails {
		f.IfNotEmpty = ""
	}
	if len(f.TopicMapping) == 0 {
		f.TopicMapping = nil
	}
	if len(f.PartitionMapping) == 0 {
		f.PartitionMapping = nil
	}
	f.Groups.canonical()
	if f.Registry == RegistryNone {
		f.Registry = ""
	}
}

func (f *RestoreFields) check() error {
	for _, from := range slices.Sorted(maps.Keys(f.TopicMapping)) {
		to := f.TopicMapping[from]
		if !topicShape.MatchString(from) || strings.Contains(from, "~") {
			return fmt.Errorf("topicMapping: %q is not a topic's name", from)
		}
		if !topicShape.MatchString(to) || strings.Contains(to, "~") || to == "." || to == ".." {
			return fmt.Errorf("topicMapping: %s: %q is not a name that a topic can have", from, to)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(f.PartitionMapping)) {
		tp, err := parseTP(key)
		if err != nil || key != tp.Topic+"/"+strconv.Itoa(int(tp.Partition)) {
			return fmt.Errorf(`partitionMapping: %q: give "topic/partition", for example "trips/0"`, key)
		}
		if f.PartitionMapping[key] < 0 {
			return fmt.Errorf("partitionMapping: %s: partition %d is negative", key, f.PartitionMapping[key])
		}
	}
	if f.ReplicationFactor < 0 || f.ReplicationFactor > maxReplication {
		return fmt.Errorf("replicationFactor %d: give 1 to %d, or leave it out for the archived one", f.ReplicationFactor, maxReplication)
	}
	if f.ReplicationFactor > 0 && !f.CreateTopics {
		return fmt.Errorf("replicationFactor is for topics that are created: it needs createTopics true")
	}
	if f.IfNotEmpty != "" && f.IfNotEmpty != NotEmptyAppend {
		return fmt.Errorf("ifNotEmpty %q is unknown; give fail or append", f.IfNotEmpty)
	}
	if f.Registry != "" && f.Registry != RegistryRestore && f.Registry != RegistrySameIDs {
		return fmt.Errorf("registry %q is unknown; give %s, %s or %s", f.Registry, RegistryNone, RegistryRestore, RegistrySameIDs)
	}
	return f.Groups.check()
}
