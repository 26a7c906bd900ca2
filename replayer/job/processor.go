package job

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"tapedeck.dev/tapedeck/shared/session"
)

// CheckProcessor reports what makes no sense for a target of type processor.
func (r *Request) CheckProcessor() error {
	if err := r.restoreOnly(); err != nil {
		return err
	}
	if err := r.contentPromise(); err != nil {
		return err
	}
	if r.Promise != session.Reproduce {
		return nil
	}
	check := func(where string, e Ends) error {
		if e.From != nil && e.From.Kind == Timestamp || e.Until != nil && e.Until.Kind == Timestamp {
			return fmt.Errorf("%sa time bound takes records one by one, whatever their offset, so the result cannot be what the live run "+
				`had; ask for promise "recompute", or give offsets`, where)
		}
		return nil
	}
	if err := check("", Ends{From: &r.From, Until: &r.Until}); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(r.Bounds)) {
		if err := check("bounds: "+key+": ", r.Bounds[key]); err != nil {
			return err
		}
	}
	return nil
}

// restoreOnly names a field that only a restore into Kafka has.
func (r *Request) restoreOnly() error {
	given := map[string]bool{
		"topicMapping": len(r.TopicMapping) > 0, "partitionMapping": len(r.PartitionMapping) > 0, "createTopics": r.CreateTopics,
		"replicationFactor": r.ReplicationFactor != 0, "ifNotEmpty": r.IfNotEmpty != "", "provenanceHeaders": r.ProvenanceHeaders,
		"groups": r.Groups != nil, "registry": r.Registry != "",
	}
	for _, field := range slices.Sorted(maps.Keys(given)) {
		if given[field] {
			return fmt.Errorf("%s is for a target of type kafka; a processor has no use for it", field)
		}
	}
	return nil
}

// CheckKafka reports what makes no sense for a target of type kafka.
func (r *Request) CheckKafka() error {
	switch {
	case len(r.Topics) == 0:
		return errors.New("topics is missing: a restore into Kafka names the topics of the archive to restore")
	case r.Promise != session.Reproduce:
		return fmt.Errorf("promise %q is for a target of type processor; a restore writes the records as they are", r.Promise)
	case r.EndMode != session.Hold:
		return fmt.Errorf("endMode %q is for a target of type processor; a restore has no windows to close", r.EndMode)
	case r.Schemas != session.FromSegment:
		return fmt.Errorf("schemas %q is for a target of type processor; a restore decodes nothing", r.Schemas)
	case r.Order != OrderPartition:
		return fmt.Errorf("order %q is for a target of type processor: a restore's records appear by transactions, in offset order per partition", r.Order)
	}
	return r.contentKafka()
}
