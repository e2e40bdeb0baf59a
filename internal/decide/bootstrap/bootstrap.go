// Package bootstrap says whether a cluster's etcd may be begun now, and on which machine. It must never take a machine that
// does not answer for one that has no data: a second etcd with the same PKI would split the cluster in two.
package bootstrap

import (
	"fmt"
	"slices"
	"strings"

	"github.com/maesh/provider-ichor/internal/decide/deleteguard"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/decide/membership"
	"github.com/maesh/provider-ichor/internal/decide/permit"
)

// Step is the name of the one step that there is, as permits carry it.
const Step = "Bootstrap"

// A Reason says what a bootstrap waits for. It is stable.
type Reason string

// Reasons to wait.
const (
	// AwaitingControlPlanes means that fewer control planes than declared are approved, or that not all of them answer.
	AwaitingControlPlanes Reason = "AwaitingControlPlanes"
	// AwaitingEtcd means that the etcd of a control plane may have data, or is just coming up, and does not answer yet.
	AwaitingEtcd Reason = "AwaitingEtcd"
)

// A Decision is one of Send, Wait, Refuse and Done.
//
//sumtype:decl
type Decision interface{ decision() }

// Send says to send Bootstrap to one machine, after it was written down that it is sent to this one. If another one is
// written down already, Next never says this.
type Send struct {
	Machine facts.MachineID
	Permit  permit.Permit
	Message string
}

// Wait says that etcd cannot be begun yet, and what for.
type Wait struct {
	Reason  Reason
	Message string
}

// Refuse says that a person has to decide.
type Refuse struct{ Refusal *deleteguard.Refusal }

// Done says that etcd was begun, or that it is never to be.
type Done struct{}

func (Send) decision()   {}
func (Wait) decision()   {}
func (Refuse) decision() {}
func (Done) decision()   {}

// Next returns the one thing to do now. Bootstrap is sent only if every approved control plane was asked and none has data
// of etcd; if it was written down for a machine before, to that machine or to none, and not again in a boot in which it has
// answered, as far as that could be written down.
func Next(f facts.Cluster) Decision {
	if f.Teardown || membership.Begun(f) {
		return Done{}
	}
	planes := controlPlanes(f)
	if f.Bootstrapped == "" {
		declared, known := f.Declared.Get()
		if !known {
			return Refuse{&deleteguard.Refusal{
				Reason:  deleteguard.UnknownCount,
				Message: "The declared number of control planes is not known: " + f.Declared.Why(),
				WayOut:  fmt.Sprintf("Restore the TalosCluster %q", f.Name),
			}}
		}
		if len(planes) < declared {
			return wait(AwaitingControlPlanes, "%d control planes are declared and %d are approved. Approve the others, and etcd is begun on one of them", declared, len(planes))
		}
	}
	for _, m := range planes {
		if d := blocks(f, m); d != nil {
			return d
		}
	}
	return choose(f, planes)
}

// blocks says why a control plane keeps etcd from being begun anywhere.
func blocks(f facts.Cluster, m facts.Machine) Decision {
	if refusal := deleteguard.CheckIdentity(f, m.ID); refusal != nil {
		return Refuse{refusal}
	}
	live, answered := m.Live.Get()
	switch {
	case !answered:
		return wait(AwaitingControlPlanes, "%s does not answer (%s), so it is not known whether it has an etcd already. Bring it back, or delete its TalosMachine if it was never configured", m.Name, m.Live.Why())
	case membership.MayHaveData(live):
		return mayHaveData(f, m, live)
	}
	return nil
}

// mayHaveData waits for a control plane whose etcd does not answer, and whose etcd service is not known to wait for its begin.
func mayHaveData(f facts.Cluster, m facts.Machine, live facts.Live) Decision {
	state, known := live.EtcdService.Get()
	switch {
	case !known:
		state = "unknown: " + live.EtcdService.Why()
	case state == "Failed" && strings.EqualFold(m.UUID, f.Bootstrapped):
		return wait(AwaitingEtcd, "Bootstrap was sent to %s, or was about to be, and its etcd service has failed%s. It is not started again in this boot. See talosctl service etcd and talosctl dmesg, correct what keeps it from starting, and reboot the machine: if it has no data then, Bootstrap is sent to it again", m.Name, says(live))
	}
	why := "" // What a service that is started again and again says is another thing each time.
	if state == "Failed" {
		why = says(live)
	}
	return wait(AwaitingEtcd, "The etcd of %s is in state %q%s and does not answer yet, so it may have data. If it stays like that, reboot the machine", m.Name, state, why)
}

// says is what the etcd service of a machine said last, to be put behind what it is about.
func says(live facts.Live) string {
	if live.EtcdSays == "" {
		return ""
	}
	return fmt.Sprintf(" (%s)", live.EtcdSays)
}

// choose the machine that was written down, or else the first by name that is ready for it.
func choose(f facts.Cluster, planes []facts.Machine) Decision {
	candidates := planes
	if f.Bootstrapped != "" {
		candidates = slices.DeleteFunc(slices.Clone(planes), func(m facts.Machine) bool { return !strings.EqualFold(m.UUID, f.Bootstrapped) })
	}
	if f.Bootstrapped != "" && len(candidates) == 0 {
		return Refuse{&deleteguard.Refusal{
			Reason:  deleteguard.UnknownIdentity,
			Message: fmt.Sprintf("Bootstrap was sent to the machine with SMBIOS UUID %s, or was about to be, and no approved control plane is that machine", f.Bootstrapped),
			WayOut:  "Declare that machine again; or, if it is certain that etcd was never begun, take the annotation ichor.maesh.dev/bootstrapped-by off the TalosCluster",
		}}
	}
	names := make([]string, 0, len(candidates))
	for _, m := range candidates {
		if live, _ := m.Live.Get(); !m.Deleting && facts.Is(live.EtcdService, "Preparing") {
			if w := answered(f, m, live); w != nil {
				return w
			}
			return Send{Machine: m.ID, Permit: permit.Grant(m.ID, Step, f.TakenAt), Message: fmt.Sprintf("Beginning etcd on %s", m.Name)}
		}
		names = append(names, m.Name)
	}
	return wait(AwaitingControlPlanes, "Etcd is begun on the first of these that has its configuration and waits for etcd: %s", strings.Join(names, ", "))
}

// answered waits for a machine that has answered Bootstrap in the boot that it is in. One that was told to begin etcd
// prepares like one that was not, for as long as it takes: Talos keeps in memory which of the two it is, so that only a boot
// undoes the call. A second call stops the etcd that the first began, and if that has data by then, does not start it again.
//
// Each boot has an ID of its own. Only in a container a machine would show that of its host, which stays: there Talos tells no
// SMBIOS UUID either, so that such a machine is one that does not answer, and never gets as far as here.
func answered(f facts.Cluster, m facts.Machine, live facts.Live) Decision {
	if f.BootstrapBoot == "" || f.Bootstrapped == "" {
		return nil
	}
	switch boot, known := live.BootID.Get(); {
	case !known:
		return wait(AwaitingEtcd, "%s has answered Bootstrap, and its boot ID cannot be read (%s), so it is not known whether it needs another one after a reboot. This goes on when its etcd is up or its boot ID can be read", m.Name, live.BootID.Why())
	case boot == f.BootstrapBoot:
		return wait(AwaitingEtcd, "%s has answered Bootstrap, and its etcd service still prepares%s. If it stays like that, see talosctl service etcd and talosctl dmesg, and reboot the machine: Bootstrap is sent to it again then", m.Name, says(live))
	}
	return nil
}

func controlPlanes(f facts.Cluster) []facts.Machine {
	var planes []facts.Machine
	for _, m := range f.Machines {
		if m.IsApprovedControlPlane() {
			planes = append(planes, m)
		}
	}
	return planes
}

func wait(r Reason, format string, args ...any) Decision {
	return Wait{Reason: r, Message: fmt.Sprintf(format, args...)}
}
