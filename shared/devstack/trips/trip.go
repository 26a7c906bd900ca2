// Package trips makes taxi trips: seeded ones, or those of a CSV file, and produces them to Kafka as a taxi company's
// devices would. Everything about a trip is a function of the seed and its index (or of the file), never of the clock or of
// the number of partitions, so that two runs produce the same records.
package trips

import (
	"fmt"
	"iter"

	"github.com/twmb/avro"

	"tapedeck.dev/tapedeck/shared/murmur2"
)

// Schema is the Avro schema of a trip.
const Schema = `{"type":"record","name":"Trip","namespace":"dev.tapedeck.demo","fields":[
{"name":"user_id","type":"string"},
{"name":"price","type":"double"},
{"name":"pickup_ms","type":{"type":"long","logicalType":"timestamp-millis"}},
{"name":"distance","type":"double"},
{"name":"passengers","type":"int"},
{"name":"pickup_zone","type":"string"},
{"name":"dropoff_zone","type":"string"}]}`

// Trip is one trip.
type Trip struct {
	UserID      string  `avro:"user_id"`
	Price       float64 `avro:"price"`     // dollars, with at most two decimals
	PickupMs    int64   `avro:"pickup_ms"` // the event time, milliseconds since the Unix epoch
	Distance    float64 `avro:"distance"`  // miles
	Passengers  int32   `avro:"passengers"`
	PickupZone  string  `avro:"pickup_zone"`
	DropoffZone string  `avro:"dropoff_zone"`

	ArrivalMs int64 `avro:"-"` // the record's timestamp, ≥ PickupMs; never decreases from trip to trip
}

// Source yields trips in the order in which they are produced.
type Source = iter.Seq2[Trip, error]

var parsed = avro.MustParse(Schema)

// AppendAvro appends the trip's Avro encoding (without the wire format's prefix).
func (t *Trip) AppendAvro(dst []byte) ([]byte, error) {
	b, err := parsed.AppendEncode(dst, t)
	if err != nil {
		return nil, fmt.Errorf("encode trip of %s: %w", t.UserID, err)
	}
	return b, nil
}

// PartitionOf returns the partition of a user: Kafka's default partitioning of the user id as key.
func PartitionOf(userID string, partitions int32) int32 {
	return murmur2.Partition([]byte(userID), partitions)
}
