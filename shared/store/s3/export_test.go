package s3

import "time"

// WithBackoff gives o with another bound of the pauses between the requests of a read.
func WithBackoff(o Options, d time.Duration) Options {
	o.maxBackoff = d
	return o
}
