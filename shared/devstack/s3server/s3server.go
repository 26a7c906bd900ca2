// Package s3server runs a real S3 server (versitygw, on a directory) inside the process, for tests and demonstrations.
package s3server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"

	"tapedeck.dev/tapedeck/shared/store/s3"
)

// Region is the region that the server answers for.
const Region = "us-east-1"

const startTimeout = 20 * time.Second

// Start runs the server over the files below dir, which it makes, on addr ("127.0.0.1:0" picks a free port), makes the
// buckets, and returns when it answers. endpoint is its base URL. The server lives until stop is called or ctx ends; stop
// waits for its end, may be called again, and returns how it ended.
//
// One server at a time runs in a process, a limit of versitygw, and it CHANGES THE WORKING DIRECTORY of the process to dir:
// resolve relative paths before. stop changes it back.
func Start(ctx context.Context, dir, addr, accessKey, secret string, buckets ...string) (endpoint string, stop func() error, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return "", nil, fmt.Errorf("start S3 server: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", nil, fmt.Errorf("start S3 server: %w", err)
	}
	cwd, err := os.Getwd()
	if err != nil {
		return "", nil, fmt.Errorf("start S3 server: %w", err)
	}
	// Between the choice of a free port and its use another process may take it: choose again.
	for try := 0; try < 5; try++ {
		var end func() error
		endpoint, end, err = startOnce(ctx, dir, addr, accessKey, secret, buckets)
		if err == nil {
			return endpoint, sync.OnceValue(func() error { return errors.Join(end(), os.Chdir(cwd)) }), nil
		}
		if _, port, _ := net.SplitHostPort(addr); port != "0" || ctx.Err() != nil {
			break
		}
	}
	return "", nil, fmt.Errorf("start S3 server on %s: %w", addr, errors.Join(err, os.Chdir(cwd)))
}

func startOnce(ctx context.Context, dir, addr, accessKey, secret string, buckets []string) (string, func() error, error) {
	addr, err := freeAddr(addr)
	if err != nil {
		return "", nil, err
	}
	storer, err := metadata(dir)
	if err != nil {
		return "", nil, err
	}
	backend, err := posix.New(dir, storer, posix.PosixOpts{})
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	var ended error
	go func() {
		defer close(done)
		ended = embedgw.RunVersityGW(ctx, backend, &embedgw.Config{
			// Given, so that it does not print to stdout which one it has chosen.
			IAMService:        auth.NewIAMServiceSingle(auth.Account{Access: accessKey, Secret: secret, Role: auth.RoleAdmin}),
			RootUserAccess:    accessKey,
			RootUserSecret:    secret,
			Region:            Region,
			Ports:             []string{addr},
			MaxConnections:    250_000,
			MaxRequests:       100_000,
			MultipartMaxParts: 10_000,
			KeepAlive:         true,
			Quiet:             true,
		})
		backend.Shutdown()
	}()
	stop := func() error {
		cancel()
		<-done
		return ended
	}
	endpoint := "http://" + addr
	if err := ready(ctx, endpoint, accessKey, secret, buckets, done); err != nil {
		return "", nil, errors.Join(err, stop())
	}
	return endpoint, stop, nil
}

// metadata stores what S3 keeps beside an object's bytes: in extended attributes, or where the file system has none, in a
// directory beside dir.
func metadata(dir string) (meta.MetadataStorer, error) {
	if err := (meta.XattrMeta{}).Test(dir); err == nil {
		return meta.XattrMeta{}, nil
	}
	side := dir + ".meta"
	if err := os.MkdirAll(side, 0o755); err != nil {
		return nil, err
	}
	return meta.NewSideCar(side)
}

// ready waits until the server answers, and makes the buckets.
func ready(ctx context.Context, endpoint, accessKey, secret string, buckets []string, done <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	go func() {
		// Serving has ended before it began: do not wait for the time-out.
		select {
		case <-done:
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := dial(ctx, endpoint); err != nil {
		return err
	}
	for _, bucket := range buckets {
		st, err := s3.New(ctx, s3.Options{
			Bucket: bucket, Endpoint: endpoint, Region: Region, PathStyle: true, AccessKey: accessKey, SecretKey: secret,
		})
		if err != nil {
			return err
		}
		if err := errors.Join(st.MakeBucket(ctx), st.Close()); err != nil {
			return err
		}
	}
	return nil
}

// dial waits until a connection is taken.
func dial(ctx context.Context, endpoint string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", endpoint[len("http://"):])
		if err == nil {
			return conn.Close()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
}

// freeAddr replaces the port 0 by a free one.
func freeAddr(addr string) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	if port != "0" {
		return net.JoinHostPort(host, port), nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
