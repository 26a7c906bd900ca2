//go:build !linux || !cgo

package kafka

import (
	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"tapedeck.dev/tapedeck/shared/record"
)

// bulk is Linux's; elsewhere the Go client's own Poll is used.
type bulk struct{}

type bulkMessage struct {
	topic string
	rec   record.Record
	err   error
}

func newBulk(*kafka.Consumer) *bulk { return nil }

func (*bulk) poll(int, func(*bulkMessage), func(kafka.Event)) bool { return false }
