package job

import (
	"go.uber.org/zap"

	"tapedeck.dev/tapedeck/shared/record"
)

// Unreadable is an object of the archive that could not be read and was passed over, as the request allowed: a gap of the job.
type Unreadable struct {
	Key    string `json:"key"`
	From   int64  `json:"from"` // its offsets inside the range, inclusive
	To     int64  `json:"to"`   // exclusive
	Byte   int64  `json:"byte"` // where it is damaged, −1 where no place can be named
	Reason string `json:"reason"`
}

// GapFields are what a log tells of a gap.
func GapFields(tp record.TopicPartition, u *Unreadable) []zap.Field {
	return []zap.Field{zap.Stringer("partition", tp), zap.Int64("from", u.From), zap.Int64("to", u.To), zap.String("key", u.Key), zap.String("reason", u.Reason)}
}
