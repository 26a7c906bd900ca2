package archiver

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/shared/kafka"
)

// lacking says which permission would cure err; err itself where it is about none. group and topic name what was asked for, topic ""
// where it is not known which.
func lacking(err error, group, topic string) error {
	const grant = "grant the archiver's user Read on %s %s (deploy/kafka/acls.txt)"
	switch {
	case errors.Is(err, kafka.ErrGroupUnauthorized):
		return fmt.Errorf("%w; "+grant, err, "group", group)
	case errors.Is(err, kafka.ErrTopicUnauthorized) && topic != "":
		return fmt.Errorf("%w; "+grant, err, "topic", topic)
	case errors.Is(err, kafka.ErrTopicUnauthorized):
		return fmt.Errorf("%w; "+grant, err, "each", "topic")
	}
	return err
}

// hidden asks about topics that are named and not in the list of all: Kafka leaves those out of it that the user may not see. It tells
// once of each.
func (w *watcher) hidden(ctx context.Context, names []string) {
	for _, name := range names {
		_, err := w.admin.Topics(ctx, name)
		if !errors.Is(err, kafka.ErrTopicUnauthorized) {
			delete(w.told, name)
			continue
		}
		if w.told == nil {
			w.told = map[string]bool{}
		}
		if !w.told[name] {
			w.told[name] = true
			w.log.Warn("a topic that is named is hidden from this user, or not there", zap.Error(lacking(err, "", name)))
		}
	}
}
