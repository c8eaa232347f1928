//go:build !linux

package childproc

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

func sysProcAttr(cfg Config) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: cfg.Credential, Setpgid: true}
}

// watch starts a shell that blocks on a pipe whose other end only we hold. When we die the pipe closes
// and the shell signals the child. Without a shell there is no watch: the child then may outlive a
// parent that was killed, which the start of the next one repairs.
func watch(pid int, sig syscall.Signal) (release func()) {
	r, w, err := os.Pipe()
	if err != nil {
		return func() {}
	}
	//nolint:noctx // Two numbers of our own; it must live exactly as long as we do.
	cmd := exec.Command("/bin/sh", "-c", "read -r _; kill -"+strconv.Itoa(int(sig))+" "+strconv.Itoa(pid))
	cmd.Stdin = r
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = cmd.Start()
	_ = r.Close()
	if err != nil {
		_ = w.Close()
		return func() {}
	}
	return func() {
		// The shell goes first: with the pipe closed it would signal a pid that may be another's by now.
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = w.Close()
	}
}

// reserve does nothing here: a socket that holds a port would keep its server out.
func reserve(int) error { return nil }
