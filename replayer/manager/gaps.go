package manager

import (
	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/shared/record"
)

// ClassUnreadable is the class of a job's own gaps: the archive holds the object, or should, and it could not be read. What the archive itself says it
// lacks has one of the classes of segment.Class.
const ClassUnreadable = "unreadable"

// GapView is an object that was passed over.
type GapView struct {
	record.TopicPartition
	Class string `json:"class"`
	job.Unreadable
}
