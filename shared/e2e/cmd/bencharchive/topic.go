package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// partitionSum is what the log holds of one partition.
type partitionSum struct {
	records  int64
	checksum uint64 // sum of the records' (segment.Checksum), as a segment's header has it
}

// produce makes the topic and fills it: JSON of taxi trips with some noise, so that it compresses as such data does.
func (b *bench) produce(ctx context.Context) (map[int32]partitionSum, error) {
	client := kafka.Client{Bootstrap: b.bootstrap, ClientID: "tapedeck-bench"}
	admin, err := kafka.NewAdmin(client)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	if err := admin.CreateTopic(ctx, b.topic, b.partitions, 1, map[string]string{"retention.ms": "-1", "message.timestamp.type": "CreateTime"}); err != nil {
		return nil, err
	}
	p, err := kafka.NewProducer(client, "", 0)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	sums := map[int32]partitionSum{}
	rnd := rand.New(rand.NewPCG(1, 2))
	from := time.Now().Add(-time.Hour).UnixMilli()
	var datum []byte
	for i := range b.records {
		part := int32(i % int64(b.partitions))
		s := sums[part]
		r := record.Record{Topic: b.topic, Partition: part, Offset: s.records, Timestamp: from + i, LeaderEpoch: record.NoEpoch}
		r.Key, r.Value = trip(rnd, i, b.size)
		if err := p.Send(ctx, &r); err != nil {
			return nil, err
		}
		datum = segment.AppendDatum(datum[:0], &r)
		sums[part] = partitionSum{s.records + 1, s.checksum + segment.Checksum(datum)}
	}
	return sums, p.Flush(ctx)
}

// trip makes key and value of size bytes together.
func trip(rnd *rand.Rand, i int64, size int) (key, value []byte) {
	key = fmt.Appendf(nil, "user-%04d", rnd.IntN(5000))
	value = fmt.Appendf(nil, `{"id":%d,"user":"%s","price":%d.%02d,"token":"%016x","pickup":"2026-03-%02dT%02d:%02d:%02dZ","payment":"card","note":"`,
		i, key, rnd.IntN(90), rnd.IntN(100), rnd.Uint64(), 1+rnd.IntN(28), rnd.IntN(24), rnd.IntN(60), rnd.IntN(60))
	if fill := size - len(key) - len(value) - 2; fill > 0 {
		value = append(value, strings.Repeat("x", fill)...)
	}
	return key, append(value, `"}`...)
}
