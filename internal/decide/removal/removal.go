package removal

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/maesh/provider-ichor/internal/decide/deleteguard"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/decide/membership"
	"github.com/maesh/provider-ichor/internal/decide/permit"
)

// Next returns the one thing to do now for the removal of machine t. Steps are not skipped because they were done before,
// only because the facts show that they are done.
//
//	before the point of no return    gate, record, cordon, drain, volumes, holds, leadership, leave etcd
//	after it                         absence, reset, verified, Node deleted, release; only forward
//	teardown of the whole cluster    holds, leave etcd but for the last one, and then as after the point of no return
func Next(f facts.Cluster, t facts.MachineID) Decision {
	m, ok := f.Machine(t)
	switch {
	case !ok:
		return Refuse{Refusal: deleteguard.CheckIdentity(f, t)}
	case !m.Approved, m.Removed:
		return Done{}
	}
	r := look(f, m)
	if refusal := deleteguard.CheckIdentity(r.f, t); refusal != nil {
		return r.refuse(refusal)
	}
	switch {
	case f.Teardown:
		return r.teardown()
	case r.forward():
		return r.finish()
	case r.found.State == membership.Unknown && r.irreversible():
		return r.refuse(deleteguard.CheckEtcd(r.f, t))
	}
	return r.begin()
}

// Irreversible tells whether the removal of machine t is past the point of no return, or cannot be told not to be: its
// member has left etcd, or a reset was sent, or nobody can tell.
func Irreversible(f facts.Cluster, t facts.MachineID) bool {
	m, ok := f.Machine(t)
	return ok && look(f, m).irreversible()
}

// A removal is the facts, looked at from one machine.
type removal struct {
	f    facts.Cluster
	m    facts.Machine
	live facts.Live
	// answers is true if the machine itself answers, in whatever mode.
	answers bool
	// accepted is true if a person accepted that the disk of this very machine is not wiped.
	accepted bool
	// found is what etcd says of the machine's member.
	found membership.Finding
	// anyway says why a machine is reset although it did not leave etcd, or is empty.
	anyway string
}

func look(f facts.Cluster, m facts.Machine) removal {
	pinned := deleteguard.Pinned(m)
	accepted := pinned != "" && strings.EqualFold(m.AcceptedUnwiped, pinned)
	if live, _ := m.Live.Get(); accepted && live.UUID != "" && !strings.EqualFold(live.UUID, pinned) {
		// The machine is gone for good, as a person wrote, and another one has its address by now.
		f, m = without(f, m)
	}
	r := removal{f: f, m: m, accepted: accepted, found: membership.Of(f, m)}
	r.live, r.answers = m.Live.Get()
	if r.triesAgain() {
		r.anyway = fmt.Sprintf(" (it has added itself to etcd again without getting to start there; what it leaves, member %x, is removed once it is blank)", uint64(r.found.Member.ID))
	}
	return r
}

// without returns the facts without what the machine at m's address said: it is not m.
func without(f facts.Cluster, m facts.Machine) (facts.Cluster, facts.Machine) {
	m.Live = facts.Unknown[facts.Live]("another machine has its address")
	f.Machines = slices.Clone(f.Machines)
	for i := range f.Machines {
		if f.Machines[i].ID == m.ID {
			f.Machines[i] = m
		}
	}
	f.Etcd.Views = slices.DeleteFunc(slices.Clone(f.Etcd.Views), func(v facts.View) bool { return v.Machine == m.ID })
	return f, m
}

// forward tells whether the facts show that there is only forward: the member that was written down is gone from etcd, or
// a reset was written down and nobody lists a member of the machine. One that came back by itself with a new member after
// a reset that failed is a member again, and goes back to the gate.
func (r removal) forward() bool {
	if r.m.Record == nil || (r.m.Record.Member == 0 && !r.m.Record.Reset) {
		return false
	}
	if r.found.State == membership.Vanishing {
		return r.found.Member.ID == r.m.Record.Member
	}
	return r.absent() || r.triesAgain()
}

// triesAgain tells whether the machine, whose member was taken out of etcd, has added itself once more and does not get to
// start: it never may, and to remove each of those members first would only have it try again, for ever. Such a member
// runs nowhere and has no vote, so a reset loses nothing with it; what is left of it is removed once the machine is blank.
func (r removal) triesAgain() bool {
	if r.m.Record == nil || r.m.Record.Member == 0 || r.found.State != membership.Listed || !r.answers || r.blank() {
		return false
	}
	e, running := r.found.Member, slices.ContainsFunc(r.f.Etcd.Views, func(v facts.View) bool { return v.Machine == r.m.ID })
	return e.Name == "" && e.Learner && e.ID != r.m.Record.Member && !running && !membership.IsListed(r.f, r.m.Record.Member)
}

// irreversible is forward, or what cannot be told not to be.
func (r removal) irreversible() bool {
	unsure := r.m.Record != nil && r.m.Record.Member != 0 && r.found.State == membership.Unknown
	return r.forward() || r.resetSent() || unsure
}

// resetSent tells whether a reset was sent, or was about to be.
func (r removal) resetSent() bool { return r.m.Record != nil && r.m.Record.Reset }

// blank tells whether the machine has no configuration.
func (r removal) blank() bool { return r.answers && r.live.Mode == facts.Maintenance }

func (r removal) absent() bool { return r.found.State == membership.Absent }

// begin is a removal that can still be called off.
func (r removal) begin() Decision {
	if refusal := deleteguard.CheckAdmission(r.f, r.m.ID); refusal != nil {
		return r.refuse(refusal)
	}
	if givenUp := r.accepted && r.absent(); !r.answers && !r.m.RemoveUnreachable && !givenUp {
		return r.unreachable()
	}
	for _, check := range []func(facts.Cluster, facts.MachineID) *deleteguard.Refusal{deleteguard.CheckEtcd, deleteguard.CheckCordons} {
		if refusal := check(r.f, r.m.ID); refusal != nil {
			return r.refuse(refusal)
		}
	}
	node, known := r.m.Node.Get()
	if !known && !r.blank() {
		return r.nodeUnknown() // before anything is written down: a removal that has begun keeps the lock from others
	}
	if r.unrecorded() {
		return r.writeDown()
	}
	if d := r.empty(node); d != nil {
		return d
	}
	if d := r.held(); d != nil {
		return d
	}
	switch {
	case r.absent():
		return r.finish()
	case r.busy():
		return r.waitForStage(MachineBusy)
	}
	return r.leave()
}

func (r removal) writeDown() Decision {
	return r.act(Record, "Writing down which machine and which member of etcd %s is", r.m.Name).recording(r.record(false))
}

// unrecorded tells whether what comes next would lose what is not written down. A member with another ID than the one
// written down has come back by itself: that is a new removal.
func (r removal) unrecorded() bool {
	nothingToLose := r.blank() && r.absent()
	return !nothingToLose && (r.m.Record == nil || (r.m.Record.Reset && !r.absent()) || r.m.Record.Member != r.found.Member.ID)
}

// record is what to write down now.
func (r removal) record(reset bool) facts.Record {
	boot, _ := r.live.BootID.Get()
	return facts.Record{UUID: cmp.Or(deleteguard.Pinned(r.m), strings.ToLower(r.live.UUID)), BootID: boot, Member: r.found.Member.ID, Reset: reset}
}

// empty takes everything off the machine's Node, or is nil if nothing is on it: a machine that is blank, or dead to
// Kubernetes as well, runs nothing.
func (r removal) empty(node facts.Node) Decision {
	switch {
	case r.blank(), !node.Exists, !r.answers && !node.Ready:
		return nil
	case !node.Cordoned:
		return r.act(Cordon, "Cordoning Node %s", node.Name)
	case len(node.Evictable) > 0:
		return r.act(Drain, "Draining Node %s, pods left (%d): %s", node.Name, len(node.Evictable), some(node.Evictable))
	case len(node.Attached) > 0:
		return r.wait(WaitingForVolumes,
			"Waiting until the volumes of Node %s are detached: %s. If one stays, see which pod uses it, or delete its VolumeAttachment", node.Name, some(node.Attached))
	}
	return nil
}

// held waits while somebody holds the removal.
func (r removal) held() Decision {
	if len(r.m.Holds) == 0 || r.forward() || r.resetSent() {
		return nil
	}
	holds := make([]string, 0, len(r.m.Holds))
	for _, h := range r.m.Holds {
		holds = append(holds, fmt.Sprintf("%s (%s)", h.Who, h.Why))
	}
	return r.wait(Held, "Held before anything irreversible by %s. Each takes its annotation hold.ichor.maesh.dev/<who> off when it is ready", strings.Join(holds, ", "))
}

// leave takes the machine's member out of etcd. The gate has let it through, from the same facts.
func (r removal) leave() Decision {
	member := r.found.Member
	own, serves := r.serves()
	switch {
	case !serves || own != member.ID:
		return r.irreversibly(RemoveMember, "Removing the member of %s (%x) from etcd through another control plane", r.m.Name, uint64(member.ID)).of(member.ID)
	case r.leads() && !r.f.Teardown:
		return r.act(MoveLeadership, "Moving the leadership of etcd away from %s", r.m.Name)
	}
	return r.irreversibly(LeaveEtcd, "Having %s leave etcd (member %x). This is the point of no return", r.m.Name, uint64(member.ID)).of(member.ID)
}

// serves returns the member that the machine itself runs, and whether it is a voter that serves: only such a one can take
// itself out.
func (r removal) serves() (facts.MemberID, bool) {
	for _, v := range r.f.Etcd.Views {
		if v.Machine == r.m.ID {
			return v.Self, !v.Learner && r.answers && facts.Is(v.Healthy, true)
		}
	}
	return 0, false
}

// leads tells whether any voter follows the machine's member.
func (r removal) leads() bool {
	return slices.ContainsFunc(membership.Voters(r.f, ""), func(v facts.View) bool { return v.Leader == r.found.Member.ID })
}

// finish takes a machine that runs no member, or whose member does not matter any more, to its end.
func (r removal) finish() Decision {
	switch {
	case r.found.State == membership.Vanishing:
		return r.wait(WaitingForAbsence, "Etcd has removed member %x of %s; waiting until %s does not list it any more. If that takes longer than some minutes, look after the etcd of %[3]s",
			uint64(r.found.Member.ID), r.m.Name, strings.Join(r.found.Listers, ", "))
	case r.blank(), !r.answers && r.accepted:
		return r.end()
	case !r.answers:
		return r.unanswered()
	case r.busy() && r.resetSent():
		return r.waitForStage(WaitingForReset)
	case r.busy():
		return r.waitForStage(MachineBusy)
	case !r.resetSent():
		return r.irreversibly(Record, "Writing down that %s is about to be reset%s", r.m.Name, r.anyway).recording(r.resetting())
	}
	return r.reset()
}

// resetting is the record of a machine that is about to be reset. What was written down before is kept.
func (r removal) resetting() facts.Record {
	if r.m.Record == nil {
		return r.record(true)
	}
	record := *r.m.Record
	record.Reset = true
	return record
}

func (r removal) reset() Decision {
	boot, known := r.live.BootID.Get()
	if !known || r.m.Record.BootID == "" || boot == r.m.Record.BootID {
		return r.irreversibly(Reset, "Resetting %s%s", r.m.Name, r.anyway)
	}
	a := r.irreversibly(Reset,
		"Resetting %s again%s: it has rebooted and still has its configuration, so it was not wiped. If that goes on, see its console: its disk may fail, or its platform gives the configuration back. Wipe it by hand; or shut it down, and %s",
		r.m.Name, r.anyway, r.accept())
	a.Again = true
	return a
}

// busy tells whether Talos is in a sequence that refuses others, with OK as its answer.
func (r removal) busy() bool {
	return slices.Contains([]string{"resetting", "rebooting", "shutting down", "upgrading", "installing"}, r.live.Stage)
}

func (r removal) waitForStage(reason Reason) Decision {
	return r.wait(reason, "Waiting until %s, which is in stage %q, is done with that. If it does not get any further, see its console", r.m.Name, r.live.Stage)
}

// unanswered is a machine without a member that does not answer and that nobody gave up.
func (r removal) unanswered() Decision {
	if r.resetSent() {
		return r.wait(WaitingForReset, "A reset was sent to %s; waiting until it answers in maintenance mode (%s). If it does not come back, see its console; %s", r.m.Name, r.m.Live.Why(), r.accept())
	}
	if !r.m.RemoveUnreachable {
		return r.unreachable()
	}
	node, known := r.m.Node.Get()
	switch {
	case !known && !r.f.Teardown:
		return r.nodeUnknown()
	case node.Exists:
		return r.deleteNode(node)
	}
	return r.wait(DiskNotWiped, "%s is out of the cluster, but it does not answer (%s), so its disk is not wiped. It is reset when it comes back; %s", r.m.Name, r.m.Live.Why(), r.accept())
}

// end is a machine that is verified to be blank, or given up in writing.
func (r removal) end() Decision {
	node, known := r.m.Node.Get()
	switch {
	case !known && !r.f.Teardown:
		return r.nodeUnknown()
	case node.Exists:
		return r.deleteNode(node)
	}
	if !r.blank() {
		return r.act(Release, "%s is gone; a person accepted that its disk is not wiped", r.m.Name)
	}
	return r.act(Release, "%s is blank and answers in maintenance mode", r.m.Name)
}

func (r removal) deleteNode(node facts.Node) Decision {
	return r.act(DeleteNode, "Deleting Node %s", node.Name)
}

func (r removal) nodeUnknown() Decision {
	return r.wait(NodeUnknown, "%s", deleteguard.NodeUnknown(r.m))
}

// unreachable is a machine that has a member, or may have, and does not answer.
func (r removal) unreachable() Decision {
	without := "set spec.forProvider.unreachable.policy to RemoveMember to take it out of etcd and Kubernetes without it; " + r.accept()
	switch {
	case r.resetSent():
		return r.wait(WaitingForReset, "A reset was sent to %s; waiting until it answers in maintenance mode (%s). If it does not come back, see its console; or %s", r.m.Name, r.m.Live.Why(), without)
	case !r.irreversible():
		without += "; or take Delete out of spec.managementPolicies to let the object go and leave the machine as it is"
	}
	return r.wait(MachineUnreachable, "%s does not answer (%s). Bring it back, or correct spec.forProvider.address if it has moved; or %s", r.m.Name, r.m.Live.Why(), without)
}

// accept says how to give a disk up.
func (r removal) accept() string {
	return fmt.Sprintf("if its disk is gone or must not be wiped, accept that with the annotation ichor.maesh.dev/accept-unwiped-disk: %q", deleteguard.Pinned(r.m))
}

func (r removal) act(s Step, format string, args ...any) Act {
	return Act{
		Step: s, Permit: permit.Grant(r.m.ID, s.String(), r.f.TakenAt), Message: fmt.Sprintf(format, args...), Irreversible: r.irreversible(),
	}
}

// irreversibly is act for a step after which there is only forward.
func (r removal) irreversibly(s Step, format string, args ...any) Act {
	a := r.act(s, format, args...)
	a.Irreversible = true
	return a
}

func (a Act) recording(r facts.Record) Act {
	a.Record = r
	return a
}

func (a Act) of(id facts.MemberID) Act {
	a.Member = id
	return a
}

func (r removal) wait(reason Reason, format string, args ...any) Decision {
	return Wait{Reason: reason, Message: fmt.Sprintf(format, args...), Irreversible: r.irreversible()}
}

func (r removal) refuse(refusal *deleteguard.Refusal) Decision {
	return Refuse{Refusal: refusal, Irreversible: r.irreversible()}
}

// some names the first few of many: a condition is read by people.
func some(names []string) string {
	const few = 5
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}
