package kafka

import (
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"go.uber.org/zap"
)

// refusedConsumer and refusedProducer name the settings on which this package's promises rest, with the reason.
var (
	refusedAny = map[string]string{
		"bootstrap.servers":    "set bootstrap.servers of the service",
		"metadata.broker.list": "set bootstrap.servers of the service",
	}
	refusedConsumer = map[string]string{
		"group.id":                      "the service sets its group",
		"enable.auto.commit":            "positions are committed only after the records are safe",
		"enable.auto.offset.store":      "positions are committed only after the records are safe",
		"auto.offset.reset":             "a position that no longer exists must be reported, never replaced",
		"enable.partition.eof":          "the end of a partition must be seen",
		"isolation.level":               "set isolation.level of the service",
		"partition.assignment.strategy": "partitions are assigned cooperatively",
		"group.protocol":                "the classic group protocol is used",
		"check.crcs":                    "a damaged batch must be seen",
	}
	refusedProducer = map[string]string{
		"enable.idempotence":    "order and exactly-once rest on it",
		"acks":                  "an acknowledged record must be safe",
		"request.required.acks": "an acknowledged record must be safe",
		"transactional.id":      "the service sets it",
	}
)

// config returns the settings that every client has, without the overrides.
func (c Client) config() (kafka.ConfigMap, error) {
	if strings.TrimSpace(c.Bootstrap) == "" {
		return nil, errors.New("no kafka address given: set bootstrap.servers to host:port")
	}
	m := kafka.ConfigMap{
		"bootstrap.servers":        c.Bootstrap,
		"enable.metrics.push":      false,
		"go.logs.channel.enable":   true,
		"log.connection.close":     false,
		"socket.keepalive.enable":  true,
		"reconnect.backoff.max.ms": 2000,
	}
	if c.ClientID != "" {
		m["client.id"] = c.ClientID
	}
	return m, nil
}

// override applies the user's settings last; a refused one is an error. It returns where access tokens come from, nil for none.
func (c Client) override(m kafka.ConfigMap, refused map[string]string) (tokenSource, error) {
	keys := make([]string, 0, len(c.Overrides))
	for k := range c.Overrides {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		why, bad := refusedAny[k]
		if !bad {
			why, bad = refused[k]
		}
		if strings.HasPrefix(k, "go.") {
			why, bad = "it is not a setting of the kafka client library", true
		}
		if bad {
			return nil, fmt.Errorf("the setting %q cannot be overridden: %s", k, why)
		}
		m[k] = c.Overrides[k]
	}
	return auth(m)
}

func (c Client) logger() *zap.Logger {
	if c.Log == nil {
		return zap.NewNop()
	}
	return c.Log
}

// forwardLogs writes librdkafka's log lines to log until ch is closed; the returned channel is closed then. Connection
// trouble is logged there as an error every second or so although the client recovers by itself, so it is a warning here, and written once
// in a while with how many like it there were (Repeats).
func forwardLogs(ch <-chan kafka.LogEvent, log *zap.Logger) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		var outage Repeats
		for e := range ch {
			fields := []zap.Field{zap.String("client", e.Name), zap.String("tag", e.Tag)}
			if e.Tag == "FAIL" || e.Tag == "ERROR" {
				held, write := outage.Line(e.Message, time.Now())
				if !write {
					continue
				}
				if held > 0 {
					fields = append(fields, zap.Int64("heldBack", held))
				}
			}
			switch {
			case e.Level <= 2:
				log.Error(e.Message, fields...)
			case e.Level <= 4:
				log.Warn(e.Message, fields...)
			case e.Level <= 6:
				log.Info(e.Message, fields...)
			default:
				log.Debug(e.Message, fields...)
			}
		}
	}()
	return done
}
