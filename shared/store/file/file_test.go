package file

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/storetest"
)

func TestSuite(t *testing.T) {
	root := t.TempDir()
	storetest.Run(t, func(t *testing.T, prefix string) store.Store {
		s, err := Open(filepath.Join(root, prefix))
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestOpenMakesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there")
	s := open(t, dir)
	if objs, more, err := s.List(t.Context(), "", "", 0); err != nil || more || len(objs) != 0 {
		t.Fatalf("list of a directory that is not there: %v, %v, %v", objs, more, err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("reading made the directory: %v", err)
	}
	if err := s.Create(t.Context(), "k", []byte("x")); err != nil {
		t.Fatalf("create in it: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	if _, err := Open("relative"); err == nil {
		t.Error("opened a relative directory")
	}
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(name); err == nil {
		t.Error("opened a file")
	}
}

// A create leaves nothing in the temporary directory, whether it wins or not; the next Open removes what is a day old,
// and only that.
func TestTempDir(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	for range 2 {
		_ = s.Create(t.Context(), "k", []byte("x"))
	}
	temp := filepath.Join(dir, TempDir)
	if entries, err := os.ReadDir(temp); err != nil || len(entries) != 0 {
		t.Fatalf("left behind: %v, %v", entries, err)
	}
	now := time.Now()
	for name, age := range map[string]time.Duration{"old": staleAfter + time.Minute, "young": staleAfter - time.Minute} {
		path := filepath.Join(temp, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	open(t, dir)
	entries, err := os.ReadDir(temp)
	if err != nil || len(entries) != 1 || entries[0].Name() != "young" {
		t.Fatalf("after the sweep: %v, %v", entries, err)
	}
	if objs, _, err := s.List(t.Context(), "", "", 0); err != nil || len(objs) != 1 {
		t.Fatalf("the listing shows the temporary directory: %v, %v", objs, err)
	}
	for _, key := range []string{TempDir + "/young", "a/" + TempDir} {
		if err := s.Create(t.Context(), key, nil); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("create of %s: %v, want ErrInvalid", key, err)
		}
	}
	if _, err := s.Get(t.Context(), TempDir+"/young"); err == nil {
		t.Error("got a temporary file")
	}
}

// "a" and "a/b" cannot both be files: the second is refused for good, and is no race lost to an equal object.
func TestKeyIsDirectory(t *testing.T) {
	s := open(t, t.TempDir())
	for _, key := range []string{"a", "d/b"} {
		if err := s.Create(t.Context(), key, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"a/b", "d"} {
		if err := s.Create(t.Context(), key, nil); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("create of %s: %v, want ErrInvalid", key, err)
		}
	}
}

func TestNotAllowed(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	if err := open(t, dir).Create(t.Context(), "k", nil); !errors.Is(err, store.ErrNotAllowed) {
		t.Errorf("create in a directory without rights: %v", err)
	}
}

// Two stores on one directory, as two processes have it.
func TestTwoStores(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir), open(t, dir)
	if err := a.Create(t.Context(), "x/k", []byte("a")); err != nil {
		t.Fatal(err)
	}
	if err := b.Create(t.Context(), "x/k", []byte("b")); !errors.Is(err, store.ErrExists) {
		t.Fatalf("create by the other store: %v", err)
	}
	if got, err := b.Get(t.Context(), "x/k"); err != nil || !bytes.Equal(got, []byte("a")) {
		t.Fatalf("get by the other store: %q, %v", got, err)
	}
}

func TestClassify(t *testing.T) {
	for _, c := range []struct {
		err  error
		want error
	}{
		{&os.LinkError{Op: "link", Err: syscall.EPERM}, store.ErrInvalid},
		{&fs.PathError{Op: "open", Err: syscall.EPERM}, store.ErrNotAllowed},
		{&fs.PathError{Op: "open", Err: syscall.EROFS}, store.ErrNotAllowed},
		{&fs.PathError{Op: "write", Err: syscall.ENOSPC}, store.ErrUnknown},
		{fmt.Errorf("open: %w", syscall.ENAMETOOLONG), store.ErrInvalid},
	} {
		if got := classifyCreate(c.err); !errors.Is(got, c.want) {
			t.Errorf("classified %v as %v, want %v", c.err, got, c.want)
		}
	}
}
