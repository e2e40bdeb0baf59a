// Package configchange says how a machine's configuration compares to the declared one, and which single step of a change
// that needs a reboot comes next. It must never know what a configuration is: others compare.
package configchange

import (
	"fmt"
	"slices"

	"github.com/maesh/provider-ichor/internal/decide/deleteguard"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/decide/membership"
	"github.com/maesh/provider-ichor/internal/decide/permit"
	"github.com/maesh/provider-ichor/internal/decide/quorum"
)

// A Step of a change that needs a reboot.
type Step int

// Steps, in order.
const (
	// Stage writes the declared configuration to disk, for the next boot.
	Stage Step = 1 + iota
	// Cordon the machine's Node.
	Cordon
	// Drain the machine's Node.
	Drain
	// MoveLeadership of etcd to another member.
	MoveLeadership
	// Reboot the machine.
	Reboot
	// Uncordon the machine's Node, if the cordon is ours.
	Uncordon
)

var steps = [...]string{Stage: "Stage", Cordon: "Cordon", Drain: "Drain", MoveLeadership: "MoveLeadership", Reboot: "Reboot", Uncordon: "Uncordon"}

// String is the name of the step. It is stable: permits carry it.
func (s Step) String() string {
	if s < Stage || s > Uncordon {
		return "unknown"
	}
	return steps[s]
}

// A Reason says what a change waits for. It is stable.
type Reason string

// Reasons to wait.
const (
	// ClusterTransitioning means that the number of approved control planes is even. Nothing is held meanwhile.
	ClusterTransitioning Reason = "ClusterTransitioning"
	// ConfigUnknown means that the machine's configuration, or the boot in which it was read, could not be compared.
	ConfigUnknown Reason = "ConfigUnknown"
	// MachineUnreachable means that the machine does not answer.
	MachineUnreachable Reason = "MachineUnreachable"
	// WaitingForReboot means that the machine is on its way down or up.
	WaitingForReboot Reason = "WaitingForReboot"
	// WaitingForMachine means that the machine is up and does not work yet as it did before.
	WaitingForMachine Reason = "WaitingForMachine"
	// NodeUnknown means that nobody can tell which Node is the machine's: the Kubernetes API of the cluster does not answer,
	// or another machine has the same hostname, or Nodes are left over.
	NodeUnknown Reason = "NodeUnknown"
)

// A Decision is one of Act, Wait, Refuse and Done.
//
//sumtype:decl
type Decision interface{ decision() }

// Act says to carry out one step.
type Act struct {
	Step    Step
	Permit  permit.Permit
	Message string
}

// Wait says that nothing can be done now, and what for.
type Wait struct {
	Reason  Reason
	Message string
}

// Refuse says that a guard does not let the change go on.
type Refuse struct{ Refusal *deleteguard.Refusal }

// Done says that no reboot is needed, and that nothing is left of one.
type Done struct{}

func (Act) decision()    {}
func (Wait) decision()   {}
func (Refuse) decision() {}
func (Done) decision()   {}

// Next returns the one thing to do now for a change of machine t's configuration that needs a reboot, or to clean up after
// one.
func Next(f facts.Cluster, t facts.MachineID, c Config) Decision {
	m, ok := f.Machine(t)
	if ok && (f.Teardown || m.Deleting || m.Removed || !m.Approved) {
		return Done{} // What is left of the change is for the removal to finish.
	}
	if refusal := deleteguard.CheckIdentity(f, t); refusal != nil {
		return Refuse{refusal}
	}
	h := change{f: f, m: m}
	var answers bool
	if h.live, answers = m.Live.Get(); !answers {
		return h.silent()
	}
	switch h.verdict(c) {
	case Staged:
		return h.reboot()
	case NeedsReboot:
		return h.stage()
	case InSync, Drifted:
		return h.verify()
	case Unknown:
	}
	return h.unknown(c)
}

// verdict is how the configuration compares to the declared one, in the boot that the machine is in now. What it had before it
// booted says nothing: a reboot for that would be one too many.
func (h change) verdict(c Config) State {
	read, known := c.BootID.Get()
	if now, ok := h.live.BootID.Get(); !known || !ok || now != read {
		return Unknown
	}
	return Verdict(c)
}

// unknown waits for what the verdict lacks, and names it.
func (h change) unknown(c Config) Decision {
	read, known := c.BootID.Get()
	now, told := h.live.BootID.Get()
	why := c.BootID.Why()
	switch {
	case !c.Active.IsKnown():
		return h.wait(ConfigUnknown, "It is not known how the configuration of %s compares to the declared one (%s). This goes on by itself when it can be read", h.m.Name, c.Active.Why())
	case known && told && read != now:
		return h.wait(ConfigUnknown, "%s has booted since its configuration was read, and may run another one now. It is read again, and this goes on then", h.m.Name)
	case known:
		why = h.live.BootID.Why()
	}
	return h.wait(ConfigUnknown, "The boot ID of %s cannot be read (%s), so it is not known whether it has booted since its configuration was read, and it is not rebooted for it. This goes on by itself when it can be read: %s has to answer, and to let the provider read it (Talos asks for the role os:admin)", h.m.Name, why, h.m.Name)
}

// A change is the facts, looked at from one machine that answers.
type change struct {
	f    facts.Cluster
	m    facts.Machine
	live facts.Live
}

// silent is a machine that does not answer: one that we rebooted, or any other.
func (h change) silent() Decision {
	if node, _ := h.m.Node.Get(); node.Ours {
		return h.wait(WaitingForReboot, "Waiting until %s is back from its reboot (%s). If it does not come back, see its console", h.m.Name, h.m.Live.Why())
	}
	return h.wait(MachineUnreachable, "%s does not answer (%s), so nothing is changed on it. Bring it back", h.m.Name, h.m.Live.Why())
}

// stage puts the declared configuration on disk. The only control plane can be rebooted by nobody but a person, so its
// configuration is staged all the same: then the reboot is all that is left to do by hand.
func (h change) stage() Decision {
	if d := h.disturbed(); d != nil {
		return d
	}
	refusal := deleteguard.CheckReboot(h.f, h.m.ID)
	if refusal != nil && (h.f.ApprovedControlPlanes() != 1 || refusal.Reason != deleteguard.QuorumWouldBreak) {
		return Refuse{refusal}
	}
	return h.act(Stage, "Writing the declared configuration to the disk of %s, for its next boot", h.m.Name)
}

// reboot empties the machine and reboots it.
func (h change) reboot() Decision {
	if d := h.disturbed(); d != nil {
		return d
	}
	if refusal := deleteguard.CheckReboot(h.f, h.m.ID); refusal != nil {
		return Refuse{refusal}
	}
	node, known := h.m.Node.Get()
	switch {
	case !known:
		return h.nodeUnknown()
	case node.Exists && !node.Cordoned:
		return h.act(Cordon, "Cordoning Node %s", node.Name)
	case node.Exists && len(node.Evictable) > 0:
		return h.act(Drain, "Draining Node %s, pods left: %d", node.Name, len(node.Evictable))
	case h.leads():
		return h.act(MoveLeadership, "Moving the leadership of etcd away from %s", h.m.Name)
	}
	return h.act(Reboot, "Rebooting %s for its new configuration", h.m.Name)
}

// disturbed waits while something else goes on: on the machine itself, or with the control planes.
func (h change) disturbed() Decision {
	if h.live.Stage == "rebooting" {
		return h.wait(WaitingForReboot, "Waiting until %s, which is in stage %q, has booted. This takes up to half an hour if its pods do not end. If it takes longer, see its console and power-cycle it", h.m.Name, h.live.Stage)
	}
	if slices.Contains([]string{"resetting", "shutting down", "upgrading", "installing"}, h.live.Stage) {
		return h.wait(WaitingForReboot, "Waiting until %s, which is in stage %q, is done with that. If it does not get any further, see its console", h.m.Name, h.live.Stage)
	}
	if n := h.f.ApprovedControlPlanes(); n > 0 && n%2 == 0 {
		return h.wait(ClusterTransitioning,
			"Cluster %q has an even number of approved control planes (%d): the reboot of %s waits until the number is odd again and goes on by itself then. %s",
			h.f.Name, n, h.m.Name, quorum.WayToOdd(n))
	}
	return nil
}

// verify ends a change: the machine has to work as it did before, and then its Node is given back.
func (h change) verify() Decision {
	node, known := h.m.Node.Get()
	switch {
	case !known:
		return h.nodeUnknown()
	case h.live.Stage != "running" || !h.live.Ready:
		return h.wait(WaitingForMachine, "Waiting until %s is ready (stage %q). If it does not get any further, see its console", h.m.Name, h.live.Stage)
	case node.Exists && !node.Ready:
		return h.wait(WaitingForMachine, "Waiting until Node %s is Ready. If it does not get any further, see its kubelet", node.Name)
	case !h.votes():
		return h.wait(WaitingForMachine, "Waiting until the etcd of %s serves as a voter. If it does not get any further, see its etcd", h.m.Name)
	case node.Ours:
		return h.act(Uncordon, "%s works and needs no reboot any more; uncordoning Node %s", h.m.Name, node.Name)
	}
	return Done{}
}

// votes tells whether the machine's member serves as a voter, if the machine is to have one.
func (h change) votes() bool {
	if membership.Of(h.f, h.m).State == membership.Absent {
		return true
	}
	return slices.ContainsFunc(membership.Healthy(membership.Voters(h.f, "")), func(v facts.View) bool { return v.Machine == h.m.ID })
}

// leads tells whether a voter follows this machine's member.
func (h change) leads() bool {
	found := membership.Of(h.f, h.m)
	return found.State == membership.Listed &&
		slices.ContainsFunc(membership.Voters(h.f, ""), func(v facts.View) bool { return v.Leader == found.Member.ID })
}

func (h change) nodeUnknown() Decision {
	return h.wait(NodeUnknown, "%s", deleteguard.NodeUnknown(h.m))
}

func (h change) act(s Step, format string, args ...any) Decision {
	return Act{Step: s, Permit: permit.Grant(h.m.ID, s.String(), h.f.TakenAt), Message: fmt.Sprintf(format, args...)}
}

func (h change) wait(r Reason, format string, args ...any) Decision {
	return Wait{Reason: r, Message: fmt.Sprintf(format, args...)}
}
