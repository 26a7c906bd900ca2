// Package sessions runs replay sessions: archived segments in, the same pipeline, outputs into topics of the session's own,
// exactly once (docs/processor.md, docs/receiver-protocol.md).
package sessions

import (
	"fmt"
	"net/http"

	"tapedeck.dev/tapedeck/shared/session"
)

// Error is an answer other than success. Ack is set where the sender should go on elsewhere.
type Error struct {
	Status int // HTTP
	Reason string
	Ack    *session.Ack
}

func (e *Error) Error() string { return e.Reason }

func answer(status int, format string, args ...any) *Error {
	return &Error{Status: status, Reason: fmt.Sprintf(format, args...)}
}

func malformed(format string, args ...any) *Error {
	return answer(http.StatusBadRequest, format, args...)
}
func missing(format string, args ...any) *Error  { return answer(http.StatusNotFound, format, args...) }
func conflict(format string, args ...any) *Error { return answer(http.StatusConflict, format, args...) }
func refused(format string, args ...any) *Error {
	return answer(http.StatusUnprocessableEntity, format, args...)
}
func later(format string, args ...any) *Error {
	return answer(http.StatusServiceUnavailable, format, args...)
}
