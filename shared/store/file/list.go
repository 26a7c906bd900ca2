package file

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"tapedeck.dev/tapedeck/shared/store"
)

// List is store.Store's.
func (s *Store) List(ctx context.Context, prefix, startAfter string, limit int) ([]store.Object, bool, error) {
	size := store.PageSize(limit)
	var objs []store.Object
	more := false
	err := s.walk(ctx, "", prefix, startAfter, func(key string, e fs.DirEntry) error {
		if len(objs) == size {
			more = true
			return fs.SkipAll
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // expired since the directory was read
		}
		if err != nil {
			return err
		}
		objs = append(objs, store.Object{Key: key, Size: info.Size()})
		return nil
	})
	if err != nil && !errors.Is(err, fs.SkipAll) {
		return nil, false, fmt.Errorf("list %s in %s: %w", prefix, s, classifyRead(err))
	}
	return objs, more, nil
}

// ListDirs is store.Store's.
func (s *Store) ListDirs(ctx context.Context, prefix string) ([]string, error) {
	if err := store.CheckDirPrefix(prefix); err != nil {
		return nil, fmt.Errorf("list directories: %w", err)
	}
	dirs, err := s.listDirs(ctx, prefix)
	if err != nil {
		return nil, fmt.Errorf("list directories %s in %s: %w", prefix, s, classifyRead(err))
	}
	return dirs, nil
}

func (s *Store) listDirs(ctx context.Context, prefix string) ([]string, error) {
	if prefix != "" && checkKey(strings.TrimSuffix(prefix, "/")) != nil {
		return nil, ctx.Err() // no key can lie there
	}
	entries, err := s.readDir(ctx, prefix)
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		// A directory without an object in it is none: a create that was cut off has left it.
		err := s.walk(ctx, prefix+e.Name()+"/", "", "", func(string, fs.DirEntry) error { return fs.SkipAll })
		switch {
		case errors.Is(err, fs.SkipAll):
			dirs = append(dirs, e.Name())
		case err != nil:
			return nil, err
		}
	}
	slices.Sort(dirs)
	return dirs, nil
}

// walk visits the objects below dir ("" or ending in a slash) whose key starts with prefix and is > startAfter, in byte
// order of the key, until visit returns an error.
func (s *Store) walk(ctx context.Context, dir, prefix, startAfter string, visit func(key string, e fs.DirEntry) error) error {
	entries, err := s.readDir(ctx, dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		key := dir + name(e)
		switch {
		case e.IsDir():
			// Every key in there starts with key.
			apart := !strings.HasPrefix(key, prefix) && !strings.HasPrefix(prefix, key)
			passed := key <= startAfter && !strings.HasPrefix(startAfter, key)
			if apart || passed {
				continue
			}
			if err := s.walk(ctx, key, prefix, startAfter, visit); err != nil {
				return err
			}
		case e.Type().IsRegular():
			if !strings.HasPrefix(key, prefix) || key <= startAfter && startAfter != "" {
				continue
			}
			if err := visit(key, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// readDir reads the entries of a directory of the store in the byte order of the keys below: "a-b", "a.b", "a/", since
// '/' sorts behind '-' and '.'; the order of the names alone is "a", "a-b", "a.b". One that is not there, or is an object, is empty.
func (s *Store) readDir(ctx context.Context, dir string) ([]fs.DirEntry, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(filepath.Join(s.root, filepath.FromSlash(dir)))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == TempDir })
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(name(a), name(b)) })
	return entries, nil
}

// name is the entry's part of a key: with the slash, for a directory.
func name(e fs.DirEntry) string {
	if e.IsDir() {
		return e.Name() + "/"
	}
	return e.Name()
}
