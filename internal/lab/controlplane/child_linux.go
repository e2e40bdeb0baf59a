package controlplane

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// startFromLastingThread starts a command from a thread that lives as long as this process. The kernel sends Pdeathsig when
// the *thread* that started the child ends, and Go ends idle threads as it likes: started from any other goroutine, the
// child would be killed at some arbitrary moment.
func startFromLastingThread(cmd *exec.Cmd) error {
	result := make(chan error, 1)
	lastingThread() <- func() { result <- cmd.Start() }
	return <-result
}

// lastingThread runs what is sent to it, one after another, on one thread that never ends.
var lastingThread = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})
