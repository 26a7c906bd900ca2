package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"tapedeck.dev/tapedeck/replayer/manager"
)

// silence is how long a stream may say nothing: it says that it is still there more often than that.
const silence = time.Minute

var errSilent = errors.New("it said nothing for " + silence.String())

// maxEventBytes bounds one event; it carries a whole job with its partitions.
const maxEventBytes = 64 << 20

// Watch follows a job by its event stream and tells see of every event, the job as it is now first. It returns nil when the stream has ended, which it
// does when the job has ended, or when the replayer shuts down: what see was told last says which. Errors as those of the other calls; a stream
// that breaks off is one that may pass.
func (c *Client) Watch(ctx context.Context, name string, see func(*manager.View)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer watchdog.Stop()
	path := "/replays/" + url.PathEscape(name) + "/events"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return err
	}
	// The same connections, without the bound on how long an answer may take: this one takes as long as the job.
	resp, err := (&http.Client{Transport: c.http.Transport}).Do(req)
	if err != nil {
		return fmt.Errorf("no answer from the replayer: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return answerError(resp, c.base+path)
	}
	if kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";"); kind != "text/event-stream" {
		return &Error{Code: http.StatusNotAcceptable, Message: fmt.Sprintf("GET %s: the answer is %q, not a stream of events", c.base+path, kind)}
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxEventBytes)
	for lines.Scan() {
		watchdog.Reset(silence)
		data, ok := strings.CutPrefix(lines.Text(), "data:")
		if !ok { // its kind and number, or the empty line behind it
			continue
		}
		v := new(manager.View)
		if err := json.Unmarshal([]byte(data), v); err != nil {
			return fmt.Errorf("GET %s: an event is not that of a replayer: %w", c.base+path, err)
		}
		see(v)
	}
	if err := lines.Err(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return fmt.Errorf("the replayer's events broke off: %w", err)
	}
	return nil
}
