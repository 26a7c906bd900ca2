// Package secure holds what the HTTP servers and clients of the project share to secure a connection: TLS settings from files, tokens,
// and both read again when a file has changed, so that a renewed certificate or token needs no restart.
package secure

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// File is a file that a setting (or flag) names; errors begin with that name.
type File struct {
	Setting string
	Path    string // "" for none
}

func (f File) read() ([]byte, error) {
	b, err := os.ReadFile(f.Path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Setting, err)
	}
	return b, nil
}

// stamp tells one content of a file from the next, without reading it.
type stamp struct {
	modified time.Time
	size     int64
}

// Reloaded is a value made of files, made again after one of them has changed. Safe for concurrent use.
type Reloaded[T any] struct {
	paths []string
	load  func() (T, error)
	warn  func(error) // nil: silent

	mu     sync.Mutex
	seen   []stamp
	value  T
	failed bool // the files' present state has been refused, and said so
}

// NewReloaded loads the value once. Later a change that cannot be loaded keeps the value from before and is reported to warn, once per
// change: a certificate that is being replaced file by file is half new for a moment.
func NewReloaded[T any](load func() (T, error), warn func(error), paths ...string) (*Reloaded[T], error) {
	r := &Reloaded[T]{paths: paths, load: load, warn: warn}
	r.seen = r.stamps() // before the content: a change in between is then seen as one
	var err error
	if r.value, err = load(); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Reloaded[T]) stamps() []stamp {
	out := make([]stamp, len(r.paths))
	for i, p := range r.paths {
		if fi, err := os.Stat(p); err == nil {
			out[i] = stamp{fi.ModTime(), fi.Size()}
		}
	}
	return out
}

// Get returns the value of the files as they are now, as far as they can be loaded.
func (r *Reloaded[T]) Get() T {
	now := r.stamps()
	r.mu.Lock()
	defer r.mu.Unlock()
	same := true
	for i := range now {
		same = same && now[i].modified.Equal(r.seen[i].modified) && now[i].size == r.seen[i].size
	}
	if same && !r.failed {
		return r.value
	}
	v, err := r.load()
	if err == nil {
		r.value, r.seen, r.failed = v, now, false
		return v
	}
	if (!same || !r.failed) && r.warn != nil {
		r.warn(fmt.Errorf("%w; going on with what was loaded before", err))
	}
	r.seen, r.failed = now, true
	return r.value
}
