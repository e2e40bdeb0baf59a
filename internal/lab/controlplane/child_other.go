//go:build unix && !linux

package controlplane

import (
	"os/exec"
	"syscall"
)

// Outside Linux the kernel has no way to tie a child's life to its parent's: after a kill -9 of the parent the children stay.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

func startFromLastingThread(cmd *exec.Cmd) error { return cmd.Start() }
