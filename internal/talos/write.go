package talos

import (
	"context"
	"errors"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
)

// A Mode says when an applied configuration takes effect. There is no mode that tries one: it is undone by whatever call
// comes next, a dry run included.
type Mode int

// Modes.
const (
	// Auto lets Talos decide, and reboots if it must. It is meant for blank machines.
	Auto Mode = 1 + iota
	// NoReboot applies at once, or is refused if a reboot would be needed.
	NoReboot
	// Staged writes to disk only: it takes effect at the next boot.
	Staged
)

var modes = map[Mode]machineapi.ApplyConfigurationRequest_Mode{
	Auto:     machineapi.ApplyConfigurationRequest_AUTO,
	NoReboot: machineapi.ApplyConfigurationRequest_NO_REBOOT,
	Staged:   machineapi.ApplyConfigurationRequest_STAGED,
}

// ApplyResult is what the machine says of a configuration that it accepted. It is written to disk some time after that:
// read it back.
type ApplyResult struct {
	// Details in the machine's own words.
	Details string
}

// leaveTimeout covers what Talos itself may wait in a leave: three minutes for its member and five for quorum.
const leaveTimeout = 9 * time.Minute

// ApplyConfig sends a configuration. One that the machine finds invalid has the class Rejected.
func (c *Client) ApplyConfig(ctx context.Context, data []byte, mode Mode) (ApplyResult, error) {
	var out ApplyResult
	const op = "apply the machine configuration"
	m, ok := modes[mode]
	if !ok || len(data) == 0 {
		return out, c.fail(op, Rejected, errors.New("the configuration is empty or its mode is not known"))
	}
	err := c.write(ctx, op, func(ctx context.Context, n *conn) error {
		r, err := only(n.machine.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{Data: data, Mode: m}))
		if err != nil {
			return err
		}
		out = ApplyResult{Details: scrub(r.GetModeDetails())}
		return nil
	})
	return out, err
}

// Bootstrap makes the machine the first member of a new etcd cluster. The machine only checks that its own data directory
// is empty (else the class is AlreadyExists), and answers before etcd is up.
func (c *Client) Bootstrap(ctx context.Context) error {
	return c.write(ctx, "bootstrap etcd", func(ctx context.Context, n *conn) error {
		_, err := n.machine.Bootstrap(ctx, &machineapi.BootstrapRequest{})
		return err
	})
}

// LeaveEtcd makes the machine leave etcd, which can take nine minutes. It is not idempotent: a second call after a success
// waits three minutes and fails. Its outcome is in the member list of the others, not in its answer.
func (c *Client) LeaveEtcd(ctx context.Context) error {
	return c.call(ctx, "leave etcd", attempt{timeout: max(leaveTimeout, c.request), write: true}, func(ctx context.Context, n *conn) error {
		_, err := n.machine.EtcdLeaveCluster(ctx, &machineapi.EtcdLeaveClusterRequest{})
		return err
	})
}

// RemoveMember has this machine remove the member with the given ID from etcd. The member's own machine is not told and
// keeps its data. A member that is gone already has the class NotFound.
func (c *Client) RemoveMember(ctx context.Context, id uint64) error {
	return c.write(ctx, "remove an etcd member", func(ctx context.Context, n *conn) error {
		_, err := n.machine.EtcdRemoveMemberByID(ctx, &machineapi.EtcdRemoveMemberByIDRequest{MemberId: id})
		return err
	})
}

// ForfeitLeadership has the machine's member hand leadership to another one. It does nothing if it does not lead.
func (c *Client) ForfeitLeadership(ctx context.Context) error {
	return c.write(ctx, "hand over etcd leadership", func(ctx context.Context, n *conn) error {
		_, err := n.machine.EtcdForfeitLeadership(ctx, &machineapi.EtcdForfeitLeadershipRequest{})
		return err
	})
}

// ResetOptions say what a reset wipes.
type ResetOptions struct {
	// Wipe lists the volumes to wipe by label, such as STATE and EPHEMERAL. It must not be empty: to Talos, an empty list
	// means the whole system disk, after which the machine does not boot.
	Wipe []string
}

// Reset wipes volumes of the machine and reboots it. It is never graceful: Talos would drain the machine past its budgets
// and leave etcd on its own, a second leave that no guard let through. Talos answers before it has begun, also if it then
// refuses because something else is running: only the machine in maintenance mode proves that a reset was done.
func (c *Client) Reset(ctx context.Context, o ResetOptions) error {
	const op = "reset the machine"
	if len(o.Wipe) == 0 {
		return c.fail(op, Rejected, errors.New("no volumes to wipe are named, which would wipe the whole disk"))
	}
	req := &machineapi.ResetRequest{Reboot: true, Mode: machineapi.ResetRequest_SYSTEM_DISK}
	for _, label := range o.Wipe {
		req.SystemPartitionsToWipe = append(req.SystemPartitionsToWipe, &machineapi.ResetPartitionSpec{Label: label, Wipe: true})
	}
	return c.write(ctx, op, func(ctx context.Context, n *conn) error {
		_, err := n.machine.Reset(ctx, req)
		return err
	})
}

// Reboot reboots the machine. Talos answers before it has begun and looks at nothing: neither Pods nor etcd.
func (c *Client) Reboot(ctx context.Context) error {
	return c.write(ctx, "reboot the machine", func(ctx context.Context, n *conn) error {
		_, err := n.machine.Reboot(ctx, &machineapi.RebootRequest{})
		return err
	})
}
