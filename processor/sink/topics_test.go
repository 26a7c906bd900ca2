package sink

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/kafka"
)

func TestCheck(t *testing.T) {
	good := Spec{Name: "out", Partitions: 4}
	for _, c := range []struct {
		name   string
		spec   Spec
		parts  int32
		change map[string]string
		want   string // "" = fit
	}{
		{"as created", good, 4, nil, ""},
		{"too few partitions", good, 3, nil, "3 partitions, not 4"},
		{"too many partitions", good, 5, nil, "5 partitions, not 4"},
		{"side output that follows its source", Spec{Name: "out", Partitions: 4, Grow: true}, 3, nil, ""},
		{"side output larger than its source", Spec{Name: "out", Partitions: 4, Grow: true}, 5, nil, "5 partitions"},
		{"log append time", good, 4, map[string]string{"message.timestamp.type": "LogAppendTime"}, "LogAppendTime"},
		{"compacted", good, 4, map[string]string{"cleanup.policy": "compact"}, "cleanup.policy"},
		{"compacted and deleted", good, 4, map[string]string{"cleanup.policy": "compact,delete"}, "cleanup.policy"},
		{"retention by time", good, 4, map[string]string{"retention.ms": "604800000"}, "retention.ms"},
		{"retention by size", good, 4, map[string]string{"retention.bytes": "1000"}, "retention.bytes"},
		{"rejects the future", good, 4, map[string]string{"message.timestamp.after.max.ms": "3600000"}, "after.max.ms"},
		{"rejects the past", good, 4, map[string]string{"message.timestamp.before.max.ms": "1"}, "before.max.ms"},
		{"as large as Kafka's default", good, 4, map[string]string{"max.message.bytes": "1048588"}, ""},
		{"too small for what it gets", Spec{Name: "out", Partitions: 4, MinMessage: MinMessage()}, 4, map[string]string{"max.message.bytes": "1048588"}, "max.message.bytes is 1048588"},
		{"large enough for what it gets", Spec{Name: "out", Partitions: 4, MinMessage: MinMessage(0, 2_000_000)}, 4, map[string]string{"max.message.bytes": "2065536"}, ""},
		{"too small for the larger source", Spec{Name: "out", Partitions: 4, MinMessage: MinMessage(2_000_000, 0)}, 4, map[string]string{"max.message.bytes": "2000000"}, "want 2065536"},
		{"as created, of a huge source", Spec{Name: "out", Partitions: 4, MinMessage: MinMessage(1 << 30)}, 4, nil, ""},
		{"progress topic", Spec{Name: "out", Partitions: 1, Compact: true}, 1, nil, ""},
		{"progress topic that is not compacted", Spec{Name: "out", Partitions: 1, Compact: true}, 1, map[string]string{"cleanup.policy": "delete"}, "not compact"},
		{"progress topic that deletes", Spec{Name: "out", Partitions: 1, Compact: true}, 1, map[string]string{"cleanup.policy": "compact,delete"}, "not compact"},
	} {
		config := c.spec.Config()
		for k, v := range c.change {
			config[k] = v
		}
		err := c.spec.Check(kafka.Topic{Name: "out", Partitions: c.parts}, config)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if err := good.Check(kafka.Topic{Name: "out", Partitions: 4}, nil); err != nil {
		t.Errorf("a broker that reports nothing: %v", err)
	}
	if got := good.Config()["message.timestamp.after.max.ms"]; got != strconv.FormatInt(math.MaxInt64, 10) {
		t.Errorf("after.max %s", got)
	}
}
