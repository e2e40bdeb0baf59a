package story

import (
	"errors"
	"fmt"

	"github.com/maesh/provider-ichor/internal/lab"
)

// What the control API of the machines calls the calls that stories look for.
const (
	CallBootstrap = "/machine.MachineService/Bootstrap"
	CallLeave     = "/machine.MachineService/EtcdLeaveCluster"
	CallReset     = "/machine.MachineService/Reset"
	CallReboot    = "/machine.MachineService/Reboot"
)

// InOrder wants exactly one leave from etcd of a control plane, and none of a worker, before the first reset.
func InOrder(calls []lab.RPC, controlPlane bool) error {
	leaves, resets := 0, 0
	for _, c := range calls {
		switch {
		case c.Method == CallLeave && resets > 0:
			return errors.New("it left etcd after it was reset")
		case c.Method == CallLeave:
			leaves++
		case c.Method == CallReset && controlPlane && leaves == 0:
			return errors.New("it was reset before it left etcd")
		case c.Method == CallReset:
			resets++
		}
	}
	want := 0
	if controlPlane {
		want = 1
	}
	if leaves != want || resets == 0 {
		return fmt.Errorf("it was told %d times to leave etcd, want %d, and %d times to reset, want at least 1", leaves, want, resets)
	}
	return nil
}
