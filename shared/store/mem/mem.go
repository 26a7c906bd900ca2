// Package mem is a store in memory, for tests: with hooks that inject faults before and after a call, creates that take
// effect later than their answer, and a count of calls.
package mem

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"

	"tapedeck.dev/tapedeck/shared/store"
)

// Store is a view of a bucket in memory below a prefix. Views of one bucket share objects, hooks, held creates and counts.
type Store struct {
	b      *bucket
	prefix string // "" or ends in "/"
}

var _ store.Store = (*Store)(nil)

type bucket struct {
	name string

	mu     sync.Mutex
	data   map[string][]byte
	attrs  map[string]store.Attributes // of data, where not zero
	keys   []string                    // of data, in byte order
	held   []heldCreate
	before Before
	after  After
	counts map[string]int
}

type heldCreate struct {
	key   string
	data  []byte
	attrs store.Attributes
}

var (
	registryMu sync.Mutex
	registry   = map[string]*bucket{}
)

// New gives an empty store of its own.
func New() *Store { return &Store{b: newBucket("")} }

// Named gives the store of that name in this process, made empty at its first use: what storeurl opens for mem://name.
func Named(name string) *Store {
	registryMu.Lock()
	defer registryMu.Unlock()
	b, ok := registry[name]
	if !ok {
		b = newBucket(name)
		registry[name] = b
	}
	return &Store{b: b}
}

// Forget removes the named store from the process, so that the next Named starts empty.
func Forget(name string) {
	registryMu.Lock()
	defer registryMu.Unlock()
	delete(registry, name)
}

func newBucket(name string) *bucket {
	return &bucket{name: name, data: map[string][]byte{}, attrs: map[string]store.Attributes{}, counts: map[string]int{}}
}

// Sub gives a store of the same bucket, scoped below prefix ("a/b", without slashes at its ends).
func (s *Store) Sub(prefix string) *Store {
	if prefix = strings.Trim(prefix, "/"); prefix == "" {
		return &Store{b: s.b, prefix: s.prefix}
	}
	return &Store{b: s.b, prefix: s.prefix + prefix + "/"}
}

// Create is store.Store's.
func (s *Store) Create(ctx context.Context, key string, data []byte, with ...store.Attributes) error {
	if err := store.CheckKey(key); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	attrs, err := store.Merge(with...)
	if err != nil {
		return fmt.Errorf("create %s in %s: %w", key, s, err)
	}
	_, err = call(ctx, s, store.OpCreate, key, func(b *bucket, full string) (struct{}, error) {
		return struct{}{}, b.create(full, data, attrs)
	}, func(b *bucket, full string) {
		b.held = append(b.held, heldCreate{key: full, data: slices.Clone(data), attrs: attrs})
	})
	return err
}

// Get is store.Store's.
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	if err := store.CheckKey(key); err != nil {
		return nil, fmt.Errorf("get: %w", err)
	}
	return call(ctx, s, store.OpGet, key, func(b *bucket, full string) ([]byte, error) {
		data, ok := b.data[full]
		if !ok {
			return nil, store.ErrNotFound
		}
		return append([]byte{}, data...), nil
	}, nil)
}

// GetRange is store.Store's.
func (s *Store) GetRange(ctx context.Context, key string, off, n int64) ([]byte, int64, error) {
	if off < 0 || n <= 0 {
		return nil, 0, fmt.Errorf("get %s: range of %d bytes at %d: %w", key, n, off, store.ErrInvalid)
	}
	if err := store.CheckKey(key); err != nil {
		return nil, 0, fmt.Errorf("get: %w", err)
	}
	type part struct {
		data []byte
		size int64
	}
	p, err := call(ctx, s, store.OpGetRange, key, func(b *bucket, full string) (part, error) {
		data, ok := b.data[full]
		if !ok {
			return part{}, store.ErrNotFound
		}
		size := int64(len(data))
		from := min(off, size)
		to := from + min(n, size-from)
		return part{append([]byte{}, data[from:to]...), size}, nil
	}, nil)
	return p.data, p.size, err
}

// List is store.Store's.
func (s *Store) List(ctx context.Context, prefix, startAfter string, limit int) ([]store.Object, bool, error) {
	type page struct {
		objs []store.Object
		more bool
	}
	p, err := call(ctx, s, store.OpList, prefix, func(b *bucket, full string) (page, error) {
		var p page
		from := sort.SearchStrings(b.keys, full)
		if startAfter != "" {
			after := s.prefix + startAfter
			from = max(from, sort.Search(len(b.keys), func(i int) bool { return b.keys[i] > after }))
		}
		for _, k := range b.keys[from:] {
			if !strings.HasPrefix(k, full) {
				break
			}
			if len(p.objs) == store.PageSize(limit) {
				p.more = true
				break
			}
			p.objs = append(p.objs, store.Object{Key: k[len(s.prefix):], Size: int64(len(b.data[k])), Class: b.attrs[k].StorageClass})
		}
		return p, nil
	}, nil)
	return p.objs, p.more, err
}

// ListDirs is store.Store's.
func (s *Store) ListDirs(ctx context.Context, prefix string) ([]string, error) {
	if err := store.CheckDirPrefix(prefix); err != nil {
		return nil, fmt.Errorf("list directories: %w", err)
	}
	return call(ctx, s, store.OpListDirs, prefix, func(b *bucket, full string) ([]string, error) {
		var dirs []string
		for _, k := range b.keys[sort.SearchStrings(b.keys, full):] {
			if !strings.HasPrefix(k, full) {
				break
			}
			dir, _, isDir := strings.Cut(k[len(full):], "/")
			if isDir && (len(dirs) == 0 || dirs[len(dirs)-1] != dir) {
				dirs = append(dirs, dir)
			}
		}
		// Keys come in the order of "dir/", names are wanted in the order of "dir": "a-b/" < "a/", but "a" < "a-b".
		slices.Sort(dirs)
		return dirs, nil
	}, nil)
}

// Sweep is store.Store's. Nothing is ever left behind here.
func (s *Store) Sweep(ctx context.Context, _ func(key string) bool) (int, error) {
	return call(ctx, s, store.OpSweep, "", func(*bucket, string) (int, error) { return 0, nil }, nil)
}

// String is store.Store's.
func (s *Store) String() string {
	addr := "mem://" + s.b.name
	if s.prefix != "" {
		addr += "/" + strings.TrimSuffix(s.prefix, "/")
	}
	return addr
}

// Close is store.Store's. The objects stay.
func (s *Store) Close() error { return nil }

// create needs b.mu held.
func (b *bucket) create(full string, data []byte, attrs store.Attributes) error {
	if _, ok := b.data[full]; ok {
		return store.ErrExists
	}
	b.put(full, data)
	if attrs.StorageClass != "" || attrs.Tags != nil {
		b.attrs[full] = attrs
	}
	return nil
}

// put needs b.mu held.
func (b *bucket) put(full string, data []byte) {
	if i, ok := slices.BinarySearch(b.keys, full); !ok {
		b.keys = slices.Insert(b.keys, i, full)
	}
	b.data[full] = append([]byte{}, data...)
}
