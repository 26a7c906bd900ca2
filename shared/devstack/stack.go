// Package devstack runs Kafka, an S3 store and a schema registry inside the process, each behind a listener of its own, as
// clients meet them. It is for people who try the project and for its tests; no product binary imports it.
//
// Kafka is franz-go's protocol server kfake (one broker, data in memory), the store is versitygw over a folder, the registry is
// franz-go's srfake (in memory).
package devstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"tapedeck.dev/tapedeck/shared/devstack/s3server"
)

// Options of a Stack. The zero value is a stack on free ports in a temporary folder.
type Options struct {
	Dir          string // for the store's objects (below s3/); "": a temporary folder, removed by Close
	KafkaPort    int    // 0: a free port, as for the others
	S3Port       int
	RegistryPort int
	Bucket       string // "": tapedeck
	Prefix       string // of StoreURL; "": archive
}

// Stack is running.
type Stack struct {
	Bootstrap   string // host:port
	S3Endpoint  string // URL
	Bucket      string
	AccessKey   string
	SecretKey   string
	RegistryURL string
	StoreURL    string // s3://bucket/prefix?endpoint=…&path-style=true&region=…
	Dir         string // absolute

	close func() error
}

const accessKey, secretKey = "tapedeck", "tapedeck-secret"

// Start starts the three servers and returns when each answers. ctx bounds the start only; the stack lives until Close.
//
// One stack at a time runs in a process, and while it does, THE WORKING DIRECTORY of the process is a folder below Dir
// (a property of the S3 server): resolve relative paths before.
func Start(ctx context.Context, o Options) (_ *Stack, err error) {
	var closers []func() error
	closeAll := func() error {
		var errs []error
		for i := len(closers) - 1; i >= 0; i-- {
			errs = append(errs, closers[i]())
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start embedded stack: %w", err), closeAll())
		}
	}()

	dir := o.Dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "tapedeck-devstack-"); err != nil {
			return nil, err
		}
		remove := dir
		closers = append(closers, func() error { return os.RemoveAll(remove) })
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	s := &Stack{Dir: dir, Bucket: o.Bucket, AccessKey: accessKey, SecretKey: secretKey}
	if s.Bucket == "" {
		s.Bucket = "tapedeck"
	}
	prefix := o.Prefix
	if prefix == "" {
		prefix = "archive"
	}

	// The broker's address goes into its answers, so it must be the one that clients use.
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(o.KafkaPort), kfake.ClusterID("tapedeck-devstack"),
		kfake.GroupMinSessionTimeout(time.Second))
	if err != nil {
		return nil, fmt.Errorf("kafka on port %d: %w", o.KafkaPort, err)
	}
	closers = append(closers, func() error { broker.Close(); return nil })
	s.Bootstrap = broker.ListenAddrs()[0]

	registryURL, stopRegistry, err := StartRegistry(o.RegistryPort)
	if err != nil {
		return nil, fmt.Errorf("schema registry on port %d: %w", o.RegistryPort, err)
	}
	closers = append(closers, stopRegistry)
	s.RegistryURL = registryURL

	// The server's context is its life, not the start's.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	closers = append(closers, func() error { end(); return nil })
	endpoint, stopS3, err := s3server.Start(life, filepath.Join(dir, "s3"), hostPort(o.S3Port), accessKey, secretKey, s.Bucket)
	if err != nil {
		return nil, err
	}
	closers = append(closers, stopS3)
	s.S3Endpoint = endpoint
	q := url.Values{"endpoint": {endpoint}, "region": {s3server.Region}, "path-style": {"true"}}
	s.StoreURL = (&url.URL{Scheme: "s3", Host: s.Bucket, Path: "/" + prefix, RawQuery: q.Encode()}).String()

	s.close = sync.OnceValue(closeAll)
	return s, ctx.Err()
}

// StartRegistry serves a schema registry in memory on a listener of the chosen port (0: a free one); stop ends it.
func StartRegistry(port int) (url string, stop func() error, err error) {
	l, err := net.Listen("tcp", hostPort(port))
	if err != nil {
		return "", nil, err
	}
	srv := &http.Server{Handler: srfake.NewRegistry().Handler(), ReadHeaderTimeout: 10 * time.Second}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	stop = func() error {
		err := srv.Close()
		if serr := <-done; !errors.Is(serr, http.ErrServerClosed) {
			err = errors.Join(err, serr)
		}
		return err
	}
	return "http://" + l.Addr().String(), stop, nil
}

func hostPort(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// Env returns what the AWS SDK of a client needs to reach the store, as NAME=value.
func (s *Stack) Env() []string {
	return []string{
		"AWS_ACCESS_KEY_ID=" + s.AccessKey,
		"AWS_SECRET_ACCESS_KEY=" + s.SecretKey,
		"AWS_REGION=" + s3server.Region,
	}
}

// Close stops the servers. It may be called again.
func (s *Stack) Close() error { return s.close() }
