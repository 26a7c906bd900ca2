package api

import "time"

// SetHeartbeat shortens the silences of streams for a test.
func (a *API) SetHeartbeat(d time.Duration) { a.heartbeat = d }
