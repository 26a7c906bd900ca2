package service

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// permanent marks an error that waiting does not cure.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// Permanent wraps an error that AtStart must not wait out (a refused store, a wrong setting).
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanent{err}
}

// aboutSetting is an error that knows which setting cures it, better than who waits does.
type aboutSetting interface {
	error
	Setting() string
	Cause() error    // without the setting's name
	Permanent() bool // waiting does not cure it
}

const startupRetry = 500 * time.Millisecond

// AtStart repeats check until it holds, at most for startup.timeout, and names the setting that its error is about. check gets the
// context with that bound and may use it up in one call.
func (f *Frame) AtStart(ctx context.Context, setting string, check func(context.Context) error) error {
	bound := f.Config.Duration("startup.timeout")
	c, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	var last error
	for {
		err := check(c)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		// The last real reason says more than the deadline that cut the next try short.
		if last == nil || !errors.Is(err, context.DeadlineExceeded) {
			last = err
		}
		about, named := errors.AsType[aboutSetting](err)
		if named && about.Permanent() {
			return fmt.Errorf("%s: %w", about.Setting(), about.Cause())
		}
		if _, ok := errors.AsType[permanent](err); ok {
			return fmt.Errorf("%s: %w", setting, err)
		}
		select {
		case <-c.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if about, ok := errors.AsType[aboutSetting](last); ok {
				setting, last = about.Setting(), about.Cause()
			}
			return fmt.Errorf("%s: %w (gave up after %s, startup.timeout)", setting, last, bound)
		case <-time.After(startupRetry):
		}
	}
}
