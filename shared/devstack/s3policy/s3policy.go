// Package s3policy holds an IAM policy against the requests of an S3 client: a proxy that lets through what the policy allows, refuses
// the rest as S3 does, and knows which of the allowed was used. It understands what the policies in deploy/iam say, and no more.
package s3policy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
)

// list is a JSON string, or a list of them.
type list []string

func (l *list) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*l = list{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(l))
}

type statement struct {
	Sid, Effect      string
	Action, Resource list
	Condition        map[string]map[string]list
}

// Guard is the proxy.
type Guard struct {
	statements []statement
	next       http.Handler

	mu     sync.Mutex
	used   map[string]bool // action on resource
	denied []string
}

// New reads a policy with BUCKET and PREFIX filled in, for a store at endpoint whose bucket stands in the path.
func New(file, bucket, prefix, endpoint string) (*Guard, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	text := strings.NewReplacer("BUCKET", bucket, "PREFIX", prefix).Replace(string(data))
	var doc struct{ Statement []statement }
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		return nil, fmt.Errorf("read policy %s: %w", file, err)
	}
	for _, s := range doc.Statement {
		for op, keys := range s.Condition {
			for key := range keys {
				if op != "StringLikeIfExists" || key != "s3:prefix" {
					return nil, fmt.Errorf("policy %s: condition %s %s is not understood", file, op, key)
				}
			}
		}
		if s.Effect != "Allow" {
			return nil, fmt.Errorf("policy %s: effect %s is not understood", file, s.Effect)
		}
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	g := &Guard{statements: doc.Statement, used: map[string]bool{}}
	// The request's Host stays what the client signed.
	g.next = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = u.Scheme, u.Host, r.In.Host
		},
		ModifyResponse: func(resp *http.Response) error {
			// Without the right to list, S3 does not tell that an object is not there.
			if resp.StatusCode == http.StatusNotFound && !g.allows("s3:ListBucket", "arn:aws:s3:::"+bucket, nil) {
				resp.StatusCode = http.StatusForbidden
				g.deny("to know that " + resp.Request.URL.Path + " is not there")
			}
			return nil
		},
	}
	return g, nil
}

// action names what IAM asks for a request.
func action(r *http.Request) (name, resource string, prefix *string) {
	q := r.URL.Query()
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	resource = "arn:aws:s3:::" + bucket
	if key != "" {
		resource += "/" + key
		switch {
		case r.Method == http.MethodGet || r.Method == http.MethodHead:
			return "s3:GetObject", resource, nil
		case r.Method == http.MethodDelete && q.Has("uploadId"):
			return "s3:AbortMultipartUpload", resource, nil
		case r.Method == http.MethodPut || r.Method == http.MethodPost:
			return "s3:PutObject", resource, nil // parts and completion too
		}
		return "s3:" + r.Method + "Object", resource, nil
	}
	if q.Has("prefix") {
		p := q.Get("prefix")
		prefix = &p
	}
	switch {
	case r.Method == http.MethodGet && q.Has("uploads"):
		return "s3:ListBucketMultipartUploads", resource, prefix
	case r.Method == http.MethodGet && (q.Has("list-type") || q.Has("prefix")):
		return "s3:ListBucket", resource, prefix
	case r.Method == http.MethodHead:
		return "s3:ListBucket", resource, nil
	}
	return "s3:" + r.Method + "Bucket", resource, prefix
}

// like matches with * for anything.
func like(pattern, s string) bool {
	head, tail, star := strings.Cut(pattern, "*")
	return s == pattern || star && tail == "" && strings.HasPrefix(s, head)
}

func (g *Guard) allows(action, resource string, prefix *string) bool {
	for _, s := range g.statements {
		if !slices.Contains(s.Action, action) {
			continue
		}
		for _, res := range s.Resource {
			if !like(res, resource) {
				continue
			}
			wanted := s.Condition["StringLikeIfExists"]["s3:prefix"]
			if prefix != nil && wanted != nil && !slices.ContainsFunc(wanted, func(p string) bool { return like(p, *prefix) }) {
				continue
			}
			g.mu.Lock()
			g.used[action+" on "+res] = true
			g.mu.Unlock()
			return true
		}
	}
	return false
}

func (g *Guard) deny(what string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.denied = append(g.denied, what)
}

func (g *Guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, resource, prefix := action(r)
	if !g.allows(name, resource, prefix) {
		g.deny(fmt.Sprintf("%s on %s (%s %s)", name, resource, r.Method, r.URL.RequestURI()))
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`<?xml version="1.0" encoding="UTF-8"?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>`))
		return
	}
	g.next.ServeHTTP(w, r)
}

// Denied lists what was refused.
func (g *Guard) Denied() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.denied)
}

// Unused lists the actions, each with its resource, that the policy allows and nobody asked for.
func (g *Guard) Unused() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []string
	for _, s := range g.statements {
		for _, a := range s.Action {
			for _, res := range s.Resource {
				if !g.used[a+" on "+res] {
					out = append(out, a+" on "+res)
				}
			}
		}
	}
	return out
}
