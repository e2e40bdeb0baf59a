package removal

import (
	"strings"

	"github.com/maesh/provider-ichor/internal/decide/deleteguard"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/decide/membership"
)

// teardown takes a machine down with its whole cluster. Nobody has to be kept serving, so nothing is cordoned or drained
// and no quorum is asked for; but as long as etcd serves, machines leave it one by one, so that a teardown that stops
// half way leaves a cluster that works.
func (r removal) teardown() Decision {
	if d := r.held(); d != nil {
		return d
	}
	if r.m.Role == facts.Worker {
		return r.finish()
	}
	if workers := r.others(facts.Worker); len(workers) > 0 && !r.forward() && !r.resetSent() {
		return r.wait(AwaitingWorkers, "The workers go first: %s", strings.Join(workers, ", "))
	}
	switch {
	case r.absent(), r.found.State == membership.Vanishing:
		return r.finish()
	case len(r.others(facts.ControlPlane)) == 0:
		r.anyway = " without leaving etcd: it is the last control plane"
		return r.finish()
	case r.etcdIsLost():
		r.anyway = " without leaving etcd, which does not serve any more"
		return r.finish()
	case !r.answers && !r.m.RemoveUnreachable && !r.accepted:
		return r.unreachable()
	}
	if refusal := deleteguard.CheckTeardown(r.f, r.m.ID); refusal != nil {
		return r.wait(AwaitingOtherMachines, "%s", refusal.Error())
	}
	switch {
	case r.unrecorded():
		return r.writeDown()
	case r.busy():
		return r.waitForStage(MachineBusy)
	}
	return r.leave()
}

// others names the other machines of a role that the teardown has not taken down yet.
func (r removal) others(role facts.Role) []string {
	var names []string
	for _, m := range r.f.Machines {
		if m.ID != r.m.ID && m.Role == role && m.Approved && !m.Removed {
			names = append(names, m.Name)
		}
	}
	return names
}

// etcdIsLost tells whether no voter that answers serves: then nobody can leave, and nothing is left to keep.
func (r removal) etcdIsLost() bool {
	return len(membership.Healthy(membership.Voters(r.f, ""))) == 0
}
