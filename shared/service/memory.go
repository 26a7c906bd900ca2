package service

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// MemoryLimit is the memory in bytes that the control group of this process allows it, the strictest of the group and those around it; ok is
// false where there is no limit, or no control group to read (another system than Linux).
func MemoryLimit() (limit int64, ok bool) { return memoryLimit(os.DirFS("/")) }

// memoryLimit reads version 2, else version 1. In a container the group's path as the process sees it may not be there: the files at the root of the
// mount are its own then.
func memoryLimit(root fs.FS) (int64, bool) {
	limit := int64(math.MaxInt64)
	take := func(file string) {
		data, err := fs.ReadFile(root, file)
		if err != nil {
			return
		}
		// Version 2 writes "max" where there is none, version 1 a number close to the largest.
		if n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64); err == nil && n > 0 && n < 1<<60 {
			limit = min(limit, n)
		}
	}
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // number:controllers:path
		if len(parts) != 3 {
			continue
		}
		mount, file := "sys/fs/cgroup", "memory.max"
		switch {
		case parts[1] == "" && parts[0] == "0":
		case strings.Contains(","+parts[1]+",", ",memory,"):
			mount, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for dir := path.Clean("/" + parts[2]); ; dir = path.Dir(dir) {
			take(path.Join(mount, dir, file))
			if dir == "/" {
				break
			}
		}
	}
	if limit == math.MaxInt64 {
		return 0, false
	}
	return limit, true
}

// LimitHeap gives the Go runtime a soft limit in bytes, unless GOMEMLIMIT has set one, and returns the one that holds. The garbage collector works
// harder near it; what lives longer than the limit allows is not refused.
func LimitHeap(bytes int64) int64 {
	if set := debug.SetMemoryLimit(-1); set != math.MaxInt64 {
		return set
	}
	debug.SetMemoryLimit(bytes)
	return bytes
}
