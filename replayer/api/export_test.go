package api

import "time"

// SetHeartbeat shortens the silences of streams for a test.
func (a *API) SetHeartbeat(d time.Duration) { a.heartbeat = d }

// SetStalled shortens the patience with clients that read nothing, for a test.
func (a *API) SetStalled(d time.Duration) { a.stalled = d }
