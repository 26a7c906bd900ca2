package target

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/secure"
	"tapedeck.dev/tapedeck/shared/session"
)

// maxAnswerBytes bounds what is read of an answer: a status of many thousand partitions fits.
const maxAnswerBytes = 32 << 20

// Client speaks the receiver protocol to one target. Safe for concurrent use. It retries nothing: who calls knows the state.
type Client struct {
	conf Config
	http *http.Client
}

// NewClient makes a client; a call without an answer within timeout counts as failed. Errors: a file or token that cannot be used.
func NewClient(conf Config, timeout time.Duration) (*Client, error) {
	conf.Security.IdlePerHost = 32
	tr, err := secure.Transport(conf.Security)
	if err != nil {
		return nil, err
	}
	return &Client{conf: conf, http: &http.Client{Transport: tr, Timeout: timeout}}, nil
}

// Config returns the target's settings.
func (c *Client) Config() Config { return c.conf }

// Close frees idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Error is an answer other than success.
type Error struct {
	Call    string // method and path
	Code    int    // HTTP status
	Message string
	// Needs is that of session.Ack, where the answer is one.
	Needs *record.TopicPartition
}

func (e *Error) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("%s: HTTP %d", e.Call, e.Code)
	}
	return fmt.Sprintf("%s: HTTP %d: %s", e.Call, e.Code, e.Message)
}

// Class says what an error of a call means for who called.
type Class int

// Classes of errors.
const (
	Retry    Class = iota // no answer, 5xx, 408: the outcome is unknown, the call may be repeated
	Busy                  // 503, 429: at its limit now
	Conflict              // 409: a skip, or a lower epoch, or another body; the session's status tells
	Missing               // 404: no such session (or pipeline)
	Refused               // any other 4xx: repeating it is of no use
)

// ClassOf classifies an error of a Client's call.
func ClassOf(err error) Class {
	var e *Error
	if !errors.As(err, &e) {
		return Retry
	}
	switch {
	case e.Code == http.StatusServiceUnavailable, e.Code == http.StatusTooManyRequests:
		return Busy
	case e.Code == http.StatusConflict:
		return Conflict
	case e.Code == http.StatusNotFound:
		return Missing
	case e.Code >= 500, e.Code == http.StatusRequestTimeout:
		return Retry
	}
	return Refused
}

// Pipeline asks what the target's pipeline reads.
func (c *Client) Pipeline(ctx context.Context) (*session.Pipeline, error) {
	var p session.Pipeline
	return &p, c.call(ctx, http.MethodGet, nil, "", nil, &p, "pipelines", c.conf.Pipeline)
}

// Open opens a session, or takes it over under a higher epoch.
func (c *Client) Open(ctx context.Context, name string, r session.Request) (*session.Status, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode the session request: %w", err)
	}
	var s session.Status
	return &s, c.call(ctx, http.MethodPut, nil, "application/json", body, &s, "sessions", name)
}

// Check asks whether a session with this request would be opened. A receiver without this call (404, 405) is taken to agree.
func (c *Client) Check(ctx context.Context, r session.Request) error {
	body, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the session request: %w", err)
	}
	err = c.call(ctx, http.MethodPost, nil, "application/json", body, nil, "sessions", "check")
	if e := new(Error); errors.As(err, &e) && (e.Code == http.StatusNotFound || e.Code == http.StatusMethodNotAllowed) {
		return nil
	}
	return err
}

// Put hands over one segment.
func (c *Client) Put(ctx context.Context, name string, epoch int64, tp record.TopicPartition, start int64, body []byte) (*session.Ack, error) {
	var a session.Ack
	return &a, c.call(ctx, http.MethodPut, &epoch, "application/avro", body, &a,
		"sessions", name, "segments", tp.Topic, strconv.Itoa(int(tp.Partition)), strconv.FormatInt(start, 10))
}

// Status asks how far a session is.
func (c *Client) Status(ctx context.Context, name string) (*session.Status, error) {
	var s session.Status
	return &s, c.call(ctx, http.MethodGet, nil, "", nil, &s, "sessions", name)
}

// Finish says that every range has been delivered.
func (c *Client) Finish(ctx context.Context, name string, epoch int64) (*session.Status, error) {
	var s session.Status
	return &s, c.call(ctx, http.MethodPost, &epoch, "", nil, &s, "sessions", name, "finish")
}

// Cancel ends a session.
func (c *Client) Cancel(ctx context.Context, name string, epoch int64) error {
	return c.call(ctx, http.MethodDelete, &epoch, "", nil, nil, "sessions", name)
}

func (c *Client) call(ctx context.Context, method string, epoch *int64, contentType string, body []byte, out any, path ...string) error {
	escaped := make([]string, len(path))
	for i, p := range path {
		escaped[i] = url.PathEscape(p)
	}
	u := strings.TrimSuffix(c.conf.URL.String(), "/") + "/" + strings.Join(escaped, "/")
	if epoch != nil {
		u += "?epoch=" + strconv.FormatInt(*epoch, 10)
	}
	name := method + " " + u
	var rd io.Reader
	if body != nil {
		rd = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, u, rd)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err // *url.Error: names method, address and cause
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	if err != nil {
		return fmt.Errorf("%s: read the answer: %w", name, err)
	}
	if len(data) > maxAnswerBytes {
		return &Error{Call: name, Code: http.StatusBadGateway, Message: "the answer is too long"}
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return answerError(name, resp.StatusCode, data)
	}
	if out == nil || len(bytes.TrimSpace(data)) == 0 && resp.StatusCode == http.StatusNoContent {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return &Error{Call: name, Code: http.StatusBadGateway, Message: fmt.Sprintf("the answer is not what the protocol says: %v", err)}
	}
	return nil
}

func answerError(call string, code int, data []byte) error {
	e := &Error{Call: call, Code: code}
	var body struct {
		Message string                 `json:"message"`
		Needs   *record.TopicPartition `json:"needs"`
	}
	if json.Unmarshal(data, &body) == nil {
		e.Message, e.Needs = body.Message, body.Needs
	} else {
		e.Message = strings.TrimSpace(string(data[:min(len(data), 300)]))
	}
	return e
}
