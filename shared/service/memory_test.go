package service

import (
	"math"
	"runtime/debug"
	"testing"
	"testing/fstest"
)

func TestMemoryLimit(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	for name, tt := range map[string]struct {
		files fstest.MapFS
		want  int64
		ok    bool
	}{
		"no control groups": {fstest.MapFS{}, 0, false},
		"v2, none":          {fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("max\n")}, 0, false},
		"v2 in a container": {fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("536870912\n")}, 512 << 20, true},
		"v2, the strictest around it": {fstest.MapFS{"proc/self/cgroup": file("0::/a/b\n"), "sys/fs/cgroup/a/b/memory.max": file("max\n"),
			"sys/fs/cgroup/a/memory.max": file("1073741824\n"), "sys/fs/cgroup/memory.max": file("2147483648\n")}, 1 << 30, true},
		"v2, the path of the host": {fstest.MapFS{"proc/self/cgroup": file("0::/host/only\n"), "sys/fs/cgroup/memory.max": file("1073741824\n")}, 1 << 30, true},
		"v1": {fstest.MapFS{"proc/self/cgroup": file("12:cpu,cpuacct:/x\n5:memory:/docker/abc\n0::/\n"),
			"sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": file("268435456\n"), "sys/fs/cgroup/memory/memory.limit_in_bytes": file("9223372036854771712\n")}, 256 << 20, true},
		"v1 in a container": {fstest.MapFS{"proc/self/cgroup": file("5:memory:/docker/abc\n"), "sys/fs/cgroup/memory/memory.limit_in_bytes": file("268435456\n")}, 256 << 20, true},
		"v1, none":          {fstest.MapFS{"proc/self/cgroup": file("5:memory:/\n"), "sys/fs/cgroup/memory/memory.limit_in_bytes": file("9223372036854771712\n")}, 0, false},
		"nonsense":          {fstest.MapFS{"proc/self/cgroup": file("x\n0::/\n"), "sys/fs/cgroup/memory.max": file("much\n")}, 0, false},
	} {
		if got, ok := memoryLimit(tt.files); got != tt.want || ok != tt.ok {
			t.Errorf("%s: %d %t, want %d %t", name, got, ok, tt.want, tt.ok)
		}
	}
}

func TestLimitHeapKeepsWhatWasSet(t *testing.T) {
	was := debug.SetMemoryLimit(math.MaxInt64)
	defer debug.SetMemoryLimit(was)
	if got := LimitHeap(1 << 40); got != 1<<40 || debug.SetMemoryLimit(-1) != 1<<40 {
		t.Errorf("%d", got)
	}
	if got := LimitHeap(1 << 41); got != 1<<40 || debug.SetMemoryLimit(-1) != 1<<40 {
		t.Errorf("what was set before was replaced by %d", got)
	}
}
