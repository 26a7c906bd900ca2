package kafka

import (
	"testing"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"tapedeck.dev/tapedeck/shared/record"
)

func TestTimestamps(t *testing.T) {
	topic := "t"
	for _, c := range []struct {
		at       time.Time
		typ      kafka.TimestampType
		want     int64
		wantType record.TimestampType
	}{
		{time.UnixMilli(1_700_000_000_123), kafka.TimestampCreateTime, 1_700_000_000_123, record.CreateTime},
		{time.UnixMilli(0), kafka.TimestampCreateTime, 0, record.CreateTime},
		{time.UnixMilli(-62_135_596_800_001), kafka.TimestampCreateTime, -62_135_596_800_001, record.CreateTime},
		{time.UnixMilli(1 << 52), kafka.TimestampCreateTime, 1 << 52, record.CreateTime},
		{time.UnixMilli(5), kafka.TimestampLogAppendTime, 5, record.LogAppendTime},
		{time.Time{}, kafka.TimestampNotAvailable, -1, record.CreateTime},
	} {
		r := toRecord(&kafka.Message{TopicPartition: kafka.TopicPartition{Topic: &topic}, Timestamp: c.at, TimestampType: c.typ}, topic)
		if r.Timestamp != c.want || r.TimestampType != c.wantType || r.LeaderEpoch != record.NoEpoch {
			t.Errorf("%v of type %v: %d of type %d, epoch %d", c.at, c.typ, r.Timestamp, r.TimestampType, r.LeaderEpoch)
		}
	}
}
