package childproc

import "syscall"

func sysProcAttr(cfg Config) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Credential: cfg.Credential,
		Pdeathsig:  cfg.DeathSignal,
		Setpgid:    true,
	}
}

// watch has nothing to do here: Pdeathsig is the kernel's own watch.
func watch(int, syscall.Signal) (release func()) { return func() {} }
