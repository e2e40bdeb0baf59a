package removal

import (
	"slices"
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
	case r.absent(), r.found.State == membership.Vanishing, r.triesAgain():
		return r.finish()
	case r.last():
		r.anyway = " without leaving etcd (it is the last control plane)"
		return r.finish()
	case r.etcdIsLost():
		r.anyway = " without leaving etcd (none of its members that answer serves)"
		return r.finish()
	}
	return r.leaveFirst()
}

// leaveFirst takes a member out of an etcd that serves and has others, if those go on serving.
func (r removal) leaveFirst() Decision {
	switch {
	case !r.answers && !r.m.RemoveUnreachable && !r.accepted:
		return r.unreachable()
	case r.unrecorded():
		return r.writeDown()
	}
	if refusal := deleteguard.CheckTeardown(r.f, r.m.ID); refusal != nil {
		if dead := r.inTheWay(); dead != 0 && refusal.Reason == deleteguard.QuorumWouldBreak {
			return r.act(RemoveMember, "Removing member %x from etcd: its machine is down for good, and it keeps %s from leaving", uint64(dead), r.m.Name).of(dead)
		}
		return r.wait(AwaitingOtherMachines, "%s", refusal.Error())
	}
	if r.busy() {
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

// last tells whether no other control plane has a member of etcd. One that has none, since it was approved too late to get
// its configuration or its member was taken out, may wait for the lock that this one holds.
func (r removal) last() bool {
	return !slices.ContainsFunc(r.f.Machines, func(m facts.Machine) bool {
		return m.ID != r.m.ID && m.IsApprovedControlPlane() && membership.Of(r.f, m).State != membership.Absent
	})
}

// etcdIsLost tells whether no member that answers, learner or voter, serves: then nobody can leave, and nothing is left to
// keep.
func (r removal) etcdIsLost() bool { return len(membership.Healthy(r.f.Etcd.Views)) == 0 }

// inTheWay returns a member of another machine that is down for good, or zero. Etcd does not let anybody leave while too
// many are dead, and the lock that the dead one needs to be taken out may be held by this one.
func (r removal) inTheWay() facts.MemberID {
	for _, v := range membership.Healthy(membership.Voters(r.f, r.m.ID)) {
		members, _ := v.Members.Get()
		for _, e := range members {
			if !e.Learner && slices.ContainsFunc(r.f.Machines, func(m facts.Machine) bool { return m.ID != r.m.ID && r.downForGood(m, e.ID) }) {
				return e.ID
			}
		}
	}
	return 0
}

// downForGood tells whether a member was m's and can never serve again: m was taken down, or is blank, or does not answer and
// a person said that it is not waited for.
func (r removal) downForGood(m facts.Machine, id facts.MemberID) bool {
	owner, owned := membership.Owner(r.f, id)
	if !slices.Contains(membership.IDs(m), id) || (owned && owner.ID != m.ID) {
		return false
	}
	o := look(r.f, m)
	if o.answers && !m.Removed {
		return o.blank() && deleteguard.CheckIdentity(r.f, m.ID) == nil
	}
	return m.Removed || m.RemoveUnreachable || o.accepted
}
