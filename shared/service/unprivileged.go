package service

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// access mode of access(2): may this process write?
const mayWrite = 2

// checkUnprivileged refuses root, and a program that its own user could overwrite: whoever takes the service over would otherwise
// stay in it after a restart. The images set run.unprivileged.
func checkUnprivileged(uid int, program string) error {
	if uid == 0 {
		return fmt.Errorf("running as root, which run.unprivileged forbids: leave the image's user 65532 as it is, or give another (docker run --user, user: in Compose)")
	}
	// Links resolved, since it is the file itself that would be overwritten.
	program, err := filepath.EvalSymlinks(program)
	if err != nil {
		return fmt.Errorf("find own program: %w", err)
	}
	for _, path := range []string{program, filepath.Dir(program)} {
		if syscall.Access(path, mayWrite) == nil {
			return fmt.Errorf("%s is writable for this service (user %d), which run.unprivileged forbids: let root own it, or mount the root file system read-only", path, uid)
		}
	}
	return nil
}

// unprivileged applies run.unprivileged to this process.
func unprivileged(c *Config) error {
	if !c.Bool("run.unprivileged") {
		return nil
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own program: %w", err)
	}
	return checkUnprivileged(os.Getuid(), program)
}
