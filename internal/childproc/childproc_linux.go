package childproc

import (
	"errors"
	"fmt"
	"syscall"
)

func sysProcAttr(cfg Config) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Credential: cfg.Credential,
		Pdeathsig:  cfg.DeathSignal,
		Setpgid:    true,
	}
}

// watch has nothing to do here: Pdeathsig is the kernel's own watch.
func watch(int, syscall.Signal) (release func()) { return func() {} }

// reserve binds a socket to the port and keeps it, as long as we live. It is not for listening: a server
// that allows its address to be used again, as all do, can listen there, and nobody else can reserve it.
func reserve(port int) error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	err = syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	if err == nil { // only now: who binds without it is refused where anybody is
		err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("reserve port %d: %w", port, err), syscall.Close(fd))
	}
	return nil
}
