package removal

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/decide/story"
)

// A box is one machine of the world, as it is and not as anybody knows it.
type box struct {
	name                          string
	worker                        bool
	removed, deleting, allowed    bool
	policy, accepted              bool
	answers, configured, etcdUp   bool
	member, last                  facts.MemberID
	boots, resetIn                int
	node, cordoned, ours, kubelet bool
	pods                          int
	record                        *facts.Record
	// left is true from the moment that a step took its member, until it joins anew.
	left bool
	// dies is true if its joins die between MemberAdd and the start of etcd, and unstarted is what the last one left.
	dies      bool
	unstarted facts.MemberID
	// lag is a list that its etcd still tells, or nil.
	lag []facts.Member
}

// A world is a cluster that things happen to. It carries out decisions and holds each against the invariants.
type world struct {
	t        *rapid.T
	boxes    []*box
	members  []facts.Member
	next     facts.MemberID
	declared int
	teardown bool
	kube     bool
	lock     *box
	log      []string
}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, kube: true, next: 0xa1}
	n := rapid.IntRange(1, 6).Draw(t, "control planes")
	w.declared = rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "declared")
	for i := range n {
		b := &box{name: fmt.Sprintf("cp-%d", i+1), answers: true, configured: true, etcdUp: true, node: true, kubelet: true, pods: 1}
		w.boxes = append(w.boxes, b)
		w.join(b, false)
	}
	if rapid.IntRange(0, 3).Draw(t, "one cannot join") == 0 {
		b := &box{name: fmt.Sprintf("cp-%d", n+1), answers: true, configured: true, node: true, kubelet: true, dies: true}
		w.boxes = append(w.boxes, b)
		w.join(b, true)
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "workers") {
		w.boxes = append(w.boxes, &box{name: fmt.Sprintf("w-%d", i+1), worker: true, answers: true, configured: true, node: true, kubelet: true, pods: 2})
	}
	return w
}

// join makes a box a member with an ID that nobody had before.
func (w *world) join(b *box, learner bool) {
	for _, o := range w.boxes {
		o.lag = nil // A member that serves knows of a new one before that is up.
	}
	e := facts.Member{ID: w.next, Name: b.name, Learner: learner, PeerHosts: []string{b.name}}
	if b.dies {
		e.Name, e.Learner = "", true
		b.member, b.unstarted, b.etcdUp = 0, e.ID, false
	} else {
		b.member, b.last, b.left = e.ID, e.ID, false
	}
	w.members = append(slices.Clone(w.members), e)
	w.next++
}

func (w *world) violatedf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s; before that: %q", fmt.Sprintf(format, args...), w.log)
}

// voters counts the voters among members, and those that are up.
func (w *world) voters(members []facts.Member) (n, up int) {
	for _, e := range members {
		if e.Learner {
			continue
		}
		n++
		if slices.ContainsFunc(w.boxes, func(b *box) bool { return b.member == e.ID && b.configured && b.etcdUp }) {
			up++
		}
	}
	return n, up
}

func (w *world) serves() bool {
	n, up := w.voters(w.members)
	return up > n/2
}

func (w *world) isMember(id facts.MemberID) bool {
	return slices.ContainsFunc(w.members, func(e facts.Member) bool { return e.ID == id })
}

func (w *world) leader() facts.MemberID {
	for _, e := range w.members {
		if b := w.runner(e.ID); !e.Learner && b != nil && b.configured && b.etcdUp && w.serves() {
			return e.ID
		}
	}
	return 0
}

func (w *world) runner(id facts.MemberID) *box {
	i := slices.IndexFunc(w.boxes, func(b *box) bool { return b.member == id })
	if i < 0 {
		return nil
	}
	return w.boxes[i]
}

// facts are what a survey would find. Only what answers is known.
func (w *world) facts() facts.Cluster {
	f := facts.Cluster{Name: "prod", TakenAt: story.TakenAt, Declared: facts.Of(w.declared), Teardown: w.teardown, Bootstrapped: "uuid-cp-1"}
	f.Etcd.Alarms = facts.Of[[]facts.Alarm](nil)
	for _, b := range w.boxes {
		m := facts.Machine{
			ID: facts.MachineID(b.name), Name: b.name, Role: facts.ControlPlane, Address: b.name, Approved: true, Deleting: b.deleting,
			AllowDelete: b.allowed, Removed: b.removed, UUID: "uuid-" + b.name, RemoveUnreachable: b.policy, Record: b.record, LastMember: b.last,
		}
		if b.worker {
			m.Role = facts.Worker
		}
		if b.accepted {
			m.AcceptedUnwiped = m.UUID
		}
		m.Live = w.live(b)
		m.Node = facts.Unknown[facts.Node]("down")
		if w.kube {
			m.Node = facts.Of(facts.Node{Exists: b.node, Name: b.name, Ready: b.kubelet, Cordoned: b.cordoned, Ours: b.ours, Evictable: make([]string, b.pods)})
		}
		f.Machines = append(f.Machines, m)
		if v, ok := w.view(b); ok {
			f.Etcd.Views = append(f.Etcd.Views, v)
		}
	}
	return f
}

func (w *world) live(b *box) facts.Known[facts.Live] {
	switch {
	case b.removed || !b.answers || b.resetIn > 0:
		return facts.Unknown[facts.Live]("no answer")
	case !b.configured:
		return facts.Of(facts.Live{Mode: facts.Maintenance, UUID: "uuid-" + b.name, Stage: "maintenance"})
	}
	l := facts.Live{Mode: facts.Configured, UUID: "uuid-" + b.name, BootID: facts.Of(fmt.Sprint(b.boots)), Stage: "running", Ready: true, EtcdService: facts.Of("Finished")}
	switch {
	case b.dies && b.member == 0:
		l.EtcdService = facts.Of("Preparing")
	case b.member != 0 && !b.left:
		l.EtcdService = facts.Of("Failed")
	}
	if b.member != 0 && b.etcdUp {
		l.EtcdService, l.Member = facts.Of("Running"), facts.Of(b.member)
	}
	return facts.Of(l)
}

func (w *world) view(b *box) (facts.View, bool) {
	if b.removed || !b.answers || !b.configured || !b.etcdUp || b.member == 0 || b.resetIn > 0 {
		return facts.View{}, false
	}
	v := facts.View{Machine: facts.MachineID(b.name), Self: b.member, Members: facts.Of(w.members), Healthy: facts.Of(false), Term: 1}
	if i := slices.IndexFunc(w.members, func(e facts.Member) bool { return e.ID == b.member }); i >= 0 {
		v.Learner = w.members[i].Learner
		v.Healthy, v.Leader = facts.Of(w.serves()), w.leader()
	}
	if b.lag != nil {
		v.Members = facts.Of(b.lag)
	}
	return v, true
}

// pass is one pass of the removal of b, with the lock as the controller keeps it.
func (w *world) pass(b *box, takes bool) Decision {
	if b.removed || (w.lock != nil && w.lock != b) {
		return nil
	}
	w.lock = b
	f := w.facts()
	id := facts.MachineID(b.name)
	d := Next(f, id)
	if again := Next(f, id); again != d && !isRefusal(d) {
		w.violatedf("I12: the same facts gave %+v and %+v", d, again)
	}
	w.log = append(w.log, fmt.Sprintf("%s: %T %+v", b.name, d, d))
	switch d := d.(type) {
	case Act:
		w.check(b, d)
		if takes {
			w.apply(b, d)
		}
	case Wait:
		if !d.Irreversible && !b.ours {
			w.lock = nil
		}
	case Refuse:
		if !d.Irreversible {
			b.cordoned, b.ours = b.cordoned && !b.ours, false
			w.lock = nil
		}
	case Done:
		w.violatedf("done, and it was not released")
	}
	return d
}

func isRefusal(d Decision) bool {
	_, ok := d.(Refuse)
	return ok
}

// check holds one step against the invariants, before it is taken.
func (w *world) check(b *box, d Act) {
	switch d.Step {
	case Cordon, Drain:
		if b.left || (b.record != nil && b.record.Reset && !w.isMember(b.member)) {
			w.violatedf("%s of %s after the point of no return", d.Step, b.name)
		}
		for _, other := range w.boxes {
			if other != b && !other.worker && !b.worker && other.ours && !other.removed {
				w.violatedf("I3: %s is cordoned while %s is", b.name, other.name)
			}
		}
	case LeaveEtcd, RemoveMember:
		w.checkLoss(b, d)
	case Reset:
		w.checkReset(b)
	case Release:
		if _, up := w.live(b).Get(); b.configured && (up || !b.accepted) {
			w.violatedf("I4: %s is released with its configuration", b.name)
		}
		if !w.teardown && !b.worker && w.isMember(b.last) {
			w.violatedf("I4: %s is released as a member", b.name)
		}
		if !w.teardown && w.isMember(b.unstarted) && w.serves() {
			w.violatedf("I4: %s is released, and what it left keeps others from joining", b.name)
		}
	case Record, MoveLeadership, DeleteNode: // Nothing is lost by them.
	}
}

func (w *world) checkLoss(b *box, d Act) {
	i := slices.IndexFunc(w.members, func(e facts.Member) bool { return e.ID == d.Member })
	if i < 0 {
		return // It is gone, and etcd says so.
	}
	if owner := w.named(w.members[i].PeerHosts[0]); owner != b {
		if !w.teardown || !owner.down() {
			w.violatedf("%s of %x, which is not the member of %s", d.Step, uint64(d.Member), b.name)
		}
		return
	}
	if b.record == nil || b.record.Member != d.Member {
		w.violatedf("%s of %x, which was not written down: %+v", d.Step, uint64(d.Member), b.record)
	}
	if !w.serves() {
		return // Etcd refuses.
	}
	if n, up := w.voters(minus(w.members, d.Member)); up <= n/2 {
		w.violatedf("I1: %s of %s leaves %d of %d voters up", d.Step, b.name, up, n)
	}
}

func (w *world) checkReset(b *box) {
	if b.record == nil || !b.record.Reset {
		w.violatedf("a reset of %s that was not written down", b.name)
	}
	if b.worker || !w.serves() {
		return
	}
	last := !slices.ContainsFunc(w.boxes, func(o *box) bool { return o != b && !o.worker && !o.removed && w.isMember(o.member) })
	for _, o := range w.boxes {
		v, ok := w.view(o)
		list, _ := v.Members.Get()
		voter := ok && o != b && w.isMember(o.member) && !v.Learner
		if voter && slices.ContainsFunc(list, func(e facts.Member) bool { return e.ID == b.member }) {
			w.violatedf("I2: %s is reset, and %s lists its member", b.name, o.name)
		}
	}
	// In a teardown one that does not serve has no vote to lose, and nobody who answers lists it.
	if w.isMember(b.member) && (!w.teardown || (b.etcdUp && !last)) {
		w.violatedf("I2: %s is reset as a member", b.name)
	}
}

func minus(members []facts.Member, id facts.MemberID) []facts.Member {
	return slices.DeleteFunc(slices.Clone(members), func(e facts.Member) bool { return e.ID == id })
}

func (w *world) named(name string) *box {
	return w.boxes[slices.IndexFunc(w.boxes, func(b *box) bool { return b.name == name })]
}

// down tells whether nobody waits for a machine any more.
func (b *box) down() bool { return b.removed || !b.answers || !b.configured }

// apply gives one step its effect.
func (w *world) apply(b *box, d Act) {
	switch d.Step {
	case Record:
		r := d.Record
		b.record = &r
	case Cordon:
		b.cordoned, b.ours = true, true
	case Drain:
		b.pods = max(0, b.pods-1)
	case MoveLeadership:
		// The first member leads in this world: it goes to the end.
		i := slices.IndexFunc(w.members, func(e facts.Member) bool { return e.ID == b.member })
		w.members = append(append(slices.Clone(w.members[:i]), w.members[i+1:]...), w.members[i])
	case LeaveEtcd, RemoveMember:
		if w.serves() {
			w.members = minus(w.members, d.Member)
			b.left = b.left || d.Member == b.member || d.Member == b.last
			if d.Member == b.unstarted && b.configured && b.resetIn == 0 {
				w.join(b, true) // It tries again at once.
			}
		}
	case Reset:
		b.resetIn = 2
	case DeleteNode:
		b.node, b.cordoned, b.ours, b.pods = false, false, false, 0
	case Release:
		b.removed = true
		w.lock = nil
	}
}
