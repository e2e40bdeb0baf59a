package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
)

// sweep removes the directory that is its argument once its standard input ends. What is killed with the lab may still
// write there for a moment.
const sweep = `cat >/dev/null
for try in 1 2 3 4 5 6 7 8 9 10; do
  rm -rf -- "$0" 2>/dev/null && exit
  sleep 1
done`

// sweepLater starts a process that removes a directory as soon as this process has ended, be it by kill -9. The function
// that it returns removes the directory now, and returns when both are gone.
func sweepLater(dir string) (swept func() error, err error) {
	cmd := exec.Command("/bin/sh", "-c", sweep, dir)     //nolint:noctx // It has to outlive this process.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // A Ctrl-C in the terminal must not reach it.
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("cannot start the sweeper: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the sweeper: %w", err)
	}
	return func() error {
		err := errors.Join(input.Close(), cmd.Wait())
		if _, there := os.Stat(dir); errors.Is(there, fs.ErrNotExist) {
			return nil
		}
		return errors.Join(err, os.RemoveAll(dir))
	}, nil
}
