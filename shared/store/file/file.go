// Package file is a store in a directory. An object is a file, its key the path below the directory; what is there is
// complete and durable. Two keys, one of which is a directory of the other ("a" and "a/b"), cannot both be stored.
package file

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"tapedeck.dev/tapedeck/shared/store"
)

// TempDir is the directory below the store's own that holds files on their way. No key has it as a path element, and no
// listing goes into it.
const TempDir = ".tapedeck-tmp"

// staleAfter is the age at which a file in TempDir is nobody's any more: longer than any create takes.
const staleAfter = store.SweepAge

// Store is a directory.
type Store struct {
	root string // absolute

	mu      sync.Mutex
	durable map[string]bool // directories whose entries up to root are known to be on disk
}

var _ store.Store = (*Store)(nil)

// Open makes the store of an absolute directory, and removes what creates that were cut off long ago have left in TempDir.
// The directory need not be there: the first create makes it, and until then the store is empty.
func Open(dir string) (*Store, error) {
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("open store in %q: the directory must be absolute, as in file:///var/archive", dir)
	}
	dir = filepath.Clean(dir)
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("open store in %s: this is not a directory", dir)
	}
	s := &Store{root: dir, durable: map[string]bool{}}
	// Whoever may only read the archive may not sweep it, and need not.
	if _, err := s.sweep(time.Now().Add(-staleAfter)); err != nil && !errors.Is(err, fs.ErrNotExist) &&
		!errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EROFS) {
		return nil, fmt.Errorf("open store in %s: %w", dir, err)
	}
	return s, nil
}

// Sweep is store.Store's. Open has done so too.
func (s *Store) Sweep(ctx context.Context, _ func(key string) bool) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	n, err := s.sweep(time.Now().Add(-staleAfter))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return n, fmt.Errorf("sweep %s: %w", s, classifyRead(err))
	}
	return n, nil
}

// sweep removes files of TempDir that were last written before the given time, and counts them.
func (s *Store) sweep(before time.Time) (removed int, err error) {
	temp := filepath.Join(s.root, TempDir)
	entries, err := os.ReadDir(temp)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // another process finished or swept it
		}
		if err != nil {
			return removed, err
		}
		if !info.Mode().IsRegular() || !info.ModTime().Before(before) {
			continue
		}
		if err := os.Remove(filepath.Join(temp, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return removed, err
		}
		removed++
	}
	return removed, nil
}

// String is store.Store's.
func (s *Store) String() string { return "file://" + s.root }

// Close is store.Store's.
func (s *Store) Close() error { return nil }

// Create is store.Store's. The bytes go to a file of TempDir and are synced there; link(2), which fails where the name is
// taken, then makes them visible at once and whole; the directory is synced last. A file system without hard links is
// refused with store.ErrInvalid. Attributes are checked and not kept.
func (s *Store) Create(ctx context.Context, key string, data []byte, with ...store.Attributes) error {
	if err := checkKey(key); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if _, err := store.Merge(with...); err != nil {
		return fmt.Errorf("create %s in %s: %w", key, s, err)
	}
	if err := s.create(ctx, key, data); err != nil {
		return fmt.Errorf("create %s in %s: %w", key, s, err)
	}
	return nil
}

func (s *Store) create(ctx context.Context, key string, data []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	path := s.path(key)
	dir := filepath.Dir(path)
	if err := os.MkdirAll(filepath.Join(s.root, TempDir), 0o777); err != nil {
		return classifyCreate(err)
	}
	temp := filepath.Join(s.root, TempDir, rand.Text())
	if err := writeSynced(temp, data); err != nil {
		return classifyCreate(errors.Join(err, removeIfThere(temp)))
	}
	defer os.Remove(temp) // what it leaves is swept some day
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return classifyCreate(err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	linkErr := os.Link(temp, path)
	if errors.Is(linkErr, fs.ErrExist) {
		info, err := os.Lstat(path)
		if err == nil && info.IsDir() {
			return fmt.Errorf("objects lie below this key, which a directory cannot hold: %w", store.ErrInvalid)
		}
		linkErr = store.ErrExists
	} else if linkErr != nil {
		return classifyCreate(linkErr)
	}
	// Also where another has created it: its maker may not have come to this yet, and the caller goes on from what it
	// found, which must still be there after a power cut.
	if err := s.syncDirs(dir); err != nil {
		return fmt.Errorf("%w: %w", store.ErrUnknown, err)
	}
	return linkErr
}

func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// syncDirs makes the entries of dir durable, and at its first use those of the directories above it, up to the root's own
// entry: any of them may be new.
func (s *Store) syncDirs(dir string) error {
	if err := syncDir(dir); err != nil {
		return err
	}
	s.mu.Lock()
	known := s.durable[dir]
	s.mu.Unlock()
	if known {
		return nil
	}
	for d := dir; d != s.root; {
		d = filepath.Dir(d)
		if err := syncDir(d); err != nil {
			return err
		}
	}
	if parent := filepath.Dir(s.root); parent != s.root {
		// Often another user's, and then there before us.
		if err := syncDir(parent); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	s.mu.Lock()
	s.durable[dir] = true
	s.mu.Unlock()
	return nil
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Get is store.Store's.
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	f, size, err := s.open(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("get %s in %s: %w", key, s, err)
	}
	defer f.Close()
	return s.readAt(f, key, 0, size)
}

// GetRange is store.Store's.
func (s *Store) GetRange(ctx context.Context, key string, off, n int64) ([]byte, int64, error) {
	if off < 0 || n <= 0 {
		return nil, 0, fmt.Errorf("get %s: range of %d bytes at %d: %w", key, n, off, store.ErrInvalid)
	}
	f, size, err := s.open(ctx, key)
	if err != nil {
		return nil, 0, fmt.Errorf("get %s in %s: %w", key, s, err)
	}
	defer f.Close()
	off = min(off, size)
	data, err := s.readAt(f, key, off, min(n, size-off))
	return data, size, err
}

func (s *Store) readAt(f *os.File, key string, off, n int64) ([]byte, error) {
	data := make([]byte, n)
	if _, err := io.ReadFull(io.NewSectionReader(f, off, n), data); err != nil {
		return nil, fmt.Errorf("get %s in %s: read %d bytes at %d: %w", key, s, n, off, err)
	}
	return data, nil
}

// open opens the file of a key and tells its size in bytes.
func (s *Store) open(ctx context.Context, key string) (*os.File, int64, error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	if err := checkKey(key); err != nil {
		return nil, 0, err
	}
	f, err := os.Open(s.path(key))
	if err != nil {
		return nil, 0, classifyRead(err)
	}
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() {
		return f, info.Size(), nil
	}
	if err == nil {
		err = store.ErrNotFound // a directory: keys lie below this one
	}
	_ = f.Close() // read only
	return nil, 0, err
}

func (s *Store) path(key string) string { return filepath.Join(s.root, filepath.FromSlash(key)) }

func checkKey(key string) error {
	if err := store.CheckKey(key); err != nil {
		return err
	}
	for elem := range strings.SplitSeq(key, "/") {
		if elem == TempDir {
			return fmt.Errorf("key %q has the path element %s, which this store keeps for itself: %w", key, TempDir, store.ErrInvalid)
		}
	}
	return nil
}

// classifyCreate adds the class of the contract to an error of the file system met before anything was made visible. What
// fits no other class, such as a full disk or a directory that vanished, may be tried again: unknown.
func classifyCreate(err error) error {
	var link *os.LinkError
	switch {
	case errors.As(err, &link) && errors.Is(err, syscall.EPERM),
		errors.Is(err, syscall.ENOTSUP), errors.Is(err, syscall.EXDEV), errors.Is(err, syscall.ENOSYS):
		return fmt.Errorf("%w: this file system cannot make hard links, choose another: %w", store.ErrInvalid, err)
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: %w", store.ErrNotAllowed, err)
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.EINVAL):
		return fmt.Errorf("%w: %w", store.ErrInvalid, err)
	default:
		return fmt.Errorf("%w: %w", store.ErrUnknown, err)
	}
}

// classifyRead adds the class of the contract to the error of a read.
func classifyRead(err error) error {
	switch {
	// Where a path element is an object, or a name too long for this file system, there can be no object below.
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ENAMETOOLONG):
		return fmt.Errorf("%w: %w", store.ErrNotFound, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %w", store.ErrNotAllowed, err)
	default:
		return err
	}
}
