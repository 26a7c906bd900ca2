// Package client calls the replayer's API. Everything that the command line does is one of these calls.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/manager"
	"tapedeck.dev/tapedeck/replayer/run"
	"tapedeck.dev/tapedeck/shared/secure"
)

// maxAnswerBytes bounds what is read of an answer; a plan of a large archive lists every segment.
const maxAnswerBytes = 512 << 20

// Client of one replayer. Safe for concurrent use.
type Client struct {
	base string
	http *http.Client
}

// New makes a client for the replayer at base, such as http://127.0.0.1:8184.
func New(base string, s secure.ClientSettings) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("url %q: give http://host:port of a replayer", base)
	}
	tr, err := secure.Transport(s)
	if err != nil {
		return nil, err
	}
	return &Client{base: strings.TrimSuffix(base, "/"), http: &http.Client{Transport: tr, Timeout: 2 * time.Minute}}, nil
}

// Error is an answer other than success.
type Error struct {
	Code    int
	Message string
}

func (e *Error) Error() string { return e.Message }

// Passing reports whether the same call may succeed later: no answer, or 5xx.
func Passing(err error) bool {
	var e *Error
	return err != nil && (!errors.As(err, &e) || e.Code >= 500)
}

// Start makes a job from a request in JSON. created is false where a job was made by the same request before.
func (c *Client) Start(ctx context.Context, request []byte) (v *manager.View, created bool, err error) {
	v = new(manager.View)
	code, err := c.call(ctx, http.MethodPost, "/replays", request, v)
	return v, code == http.StatusCreated, err
}

// DryRun plans a request without starting it.
func (c *Client) DryRun(ctx context.Context, request []byte) (*run.Plan, error) {
	p := new(run.Plan)
	_, err := c.call(ctx, http.MethodPost, "/replays?dryRun=true", request, p)
	return p, err
}

// List returns every job.
func (c *Client) List(ctx context.Context) ([]*manager.View, error) {
	var l struct {
		Replays []*manager.View `json:"replays"`
	}
	_, err := c.call(ctx, http.MethodGet, "/replays", nil, &l)
	return l.Replays, err
}

// Get returns a job.
func (c *Client) Get(ctx context.Context, name string) (*manager.View, error) {
	v := new(manager.View)
	_, err := c.call(ctx, http.MethodGet, "/replays/"+url.PathEscape(name), nil, v)
	return v, err
}

// Do asks for pause, resume, cancel or retry.
func (c *Client) Do(ctx context.Context, name string, e job.Event) (*manager.View, error) {
	v := new(manager.View)
	_, err := c.call(ctx, http.MethodPost, "/replays/"+url.PathEscape(name)+"/"+string(e), nil, v)
	return v, err
}

func (c *Client) call(ctx context.Context, method, path string, body []byte, out any) (int, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, fmt.Errorf("no answer from the replayer: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return resp.StatusCode, answerError(resp, c.base+path)
	}
	data, err := readAnswer(resp)
	if err != nil {
		return resp.StatusCode, err
	}
	if err := json.Unmarshal(data, out); err != nil {
		return resp.StatusCode, fmt.Errorf("%s %s: the answer is not that of a replayer: %w", method, c.base+path, err)
	}
	return resp.StatusCode, nil
}

func readAnswer(resp *http.Response) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read the replayer's answer: %w", err)
	}
	if len(data) > maxAnswerBytes {
		return nil, errors.New("the replayer's answer is too long")
	}
	return data, nil
}

// answerError is what an answer other than success says.
func answerError(resp *http.Response, url string) error {
	data, err := readAnswer(resp)
	if err != nil {
		return err
	}
	var e struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(data, &e) != nil || e.Message == "" {
		e.Message = fmt.Sprintf("%s %s: %s", resp.Request.Method, url, resp.Status)
	}
	return &Error{resp.StatusCode, e.Message}
}
