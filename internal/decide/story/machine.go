package story

import (
	"fmt"
	"strings"

	"github.com/maesh/provider-ichor/internal/decide/facts"
)

// mute is why a member that answers does not tell its list.
const mute = "etcdserver: request timed out"

// noBoot is why a machine does not tell its boot ID.
const noBoot = "not authorized"

// An actor is a machine while its words are read.
type actor struct {
	m      facts.Machine
	live   facts.Live
	node   facts.Node
	member facts.Member
	view   *facts.View
	leads  bool
}

func (t *teller) machine(words []string) error {
	n := len(t.f.Machines) + 1
	a := &actor{member: facts.Member{ID: facts.MemberID(0xa0 + n)}}
	a.m = facts.Machine{
		ID: facts.MachineID("id-" + words[0]), Name: words[0], Role: facts.ControlPlane, Approved: true,
		UUID: "uuid-" + words[0], Address: fmt.Sprintf("192.0.2.%d", n),
	}
	a.live = facts.Live{Mode: facts.Configured, UUID: a.m.UUID, BootID: facts.Of("boot-1"), Stage: "running", Ready: true, TalosVersion: facts.Of("v1.13.9")}
	a.node = facts.Node{Exists: true, Name: words[0], Ready: true}
	a.m.Node = facts.Of(a.node)
	a.m.Live = facts.Of(a.live)
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		if !a.object(key, value) && !a.liveWord(key, value) && !a.etcd(key, value) && !a.nodeWord(key, value) {
			return fmt.Errorf("a machine has no %q", w)
		}
	}
	t.add(a)
	return nil
}

// object reads what the TalosMachine says.
func (a *actor) object(key, value string) bool {
	switch key {
	case "worker":
		a.m.Role = facts.Worker
	case "unapproved":
		a.m.Approved = false
	case "removed":
		a.m.Removed = true
	case "deleting":
		a.m.Deleting = true
	case "allowed":
		a.m.AllowDelete = true
	case "unpinned":
		a.m.UUID = ""
	case "same":
		a.m.SameMachine = strings.Split(value, ",")
	case "hold":
		who, why, _ := strings.Cut(value, ":")
		a.m.Holds = append(a.m.Holds, facts.Hold{Who: who, Why: why})
	case "policy":
		a.m.RemoveUnreachable = value == "RemoveMember"
	case "accepted":
		a.m.AcceptedUnwiped = a.m.UUID
	case "record":
		a.record(value)
	case "last":
		a.m.LastMember = member(value)
	case "at":
		a.m.Address = value
	default:
		return false
	}
	return true
}

// record reads "none", "a4", "none+reset" or "a4+reset".
func (a *actor) record(value string) {
	id, reset := strings.CutSuffix(value, "+reset")
	a.m.Record = &facts.Record{UUID: a.m.UUID, BootID: "boot-1", Reset: reset}
	if id != "none" {
		a.m.Record.Member = member(id)
	}
}

// liveWord reads what the machine answers.
func (a *actor) liveWord(key, value string) bool {
	switch key {
	case "silent":
		a.m.Live = facts.Unknown[facts.Live]("connection refused")
		return true
	case "blank":
		a.live = facts.Live{Mode: facts.Maintenance, UUID: a.live.UUID, Stage: "maintenance"}
	case "uuid":
		a.live.UUID = value
	case "boot":
		if a.live.BootID = facts.Of(value); value == "?" {
			a.live.BootID = facts.Unknown[string](noBoot)
		}
	case "stage":
		a.live.Stage = value
	case "unready":
		a.live.Ready = false
	case "service":
		state, says, _ := strings.Cut(value, ":")
		a.live.EtcdService, a.live.EtcdSays = facts.Of(state), strings.ReplaceAll(says, "_", " ")
	default:
		return false
	}
	a.m.Live = facts.Of(a.live)
	return true
}

// etcd reads what its member is, and then what that says.
func (a *actor) etcd(key, value string) bool {
	switch {
	case key == "voter", key == "learner":
		a.member.Name, a.member.Learner, a.member.PeerHosts = a.m.Name, key == "learner", []string{a.m.Address}
		a.view = &facts.View{Machine: a.m.ID, Self: a.member.ID, Learner: a.member.Learner, Term: 7, Healthy: facts.Of(true)}
		a.m.LastMember = a.member.ID
		return true
	case a.view == nil:
		return false
	}
	switch key {
	case "id":
		a.member.ID, a.view.Self, a.m.LastMember = member(value), member(value), member(value)
	case "leader":
		a.leads = true
	case "sick":
		a.view.Healthy = facts.Of(false)
	case "mute":
		a.view.Members = facts.Unknown[[]facts.Member](mute)
	case "etcd-down":
		a.view = nil
	case "sees":
		a.view.Members = facts.Of(sees(value))
	case "follows":
		a.view.Leader = member(value)
	case "term":
		_, _ = fmt.Sscanf(value, "%d", &a.view.Term) // Stories have numbers here.
	default:
		return false
	}
	return true
}

// sees reads a list of members such as a1,a2,a3?, where a question mark is a learner.
func sees(value string) []facts.Member {
	ids := strings.Split(value, ",")
	list := make([]facts.Member, 0, len(ids))
	for _, id := range ids {
		id, learner := strings.CutSuffix(id, "?")
		list = append(list, facts.Member{ID: member(id), Name: id, Learner: learner})
	}
	return list
}

// nodeWord reads what Kubernetes says.
func (a *actor) nodeWord(key, value string) bool {
	switch key + "=" + value {
	case "node=none":
		a.node = facts.Node{}
	case "node=down":
		a.node.Ready = false
	case "node=cordoned":
		a.node.Cordoned = true
	case "node=ours":
		a.node.Cordoned, a.node.Ours = true, true
	case "node=leftover":
		a.m.LeftoverNodes = []string{a.m.Name, a.m.Name + "-old"}
		a.m.Node = facts.Unknown[facts.Node](fmt.Sprintf("the Nodes %s are all of this machine by its UUID", strings.Join(a.m.LeftoverNodes, ", ")))
		return true
	case "node=?":
		a.m.Node = facts.Unknown[facts.Node]("the API server does not answer")
		return true
	default:
		switch key {
		case "twin":
			a.m.Nodename, a.m.SameNodename = "host-1", strings.Split(value, ",")
			a.m.Node = facts.Unknown[facts.Node](fmt.Sprintf("its hostname \"host-1\" is also that of %s", strings.Join(a.m.SameNodename, ", ")))
			return true
		case "pods":
			a.node.Evictable = strings.Split(value, ",")
		case "volumes":
			a.node.Attached = strings.Split(value, ",")
		default:
			return false
		}
	}
	a.m.Node = facts.Of(a.node)
	return true
}

// add the machine, and its member to etcd. A machine that does not answer, or is blank, has no view.
func (t *teller) add(a *actor) {
	live, answers := a.m.Live.Get()
	if !answers || live.Mode == facts.Maintenance {
		a.view = nil
	}
	if a.view != nil && a.view.Self != 0 {
		live.Member = facts.Of(a.view.Self)
		if !live.EtcdService.IsKnown() {
			live.EtcdService = facts.Of("Running")
		}
		a.m.Live = facts.Of(live)
	}
	if a.member.Name != "" {
		t.members = append(t.members, a.member)
	}
	if t.leader == 0 || a.leads {
		if a.view != nil && facts.Is(a.view.Healthy, true) && !a.view.Learner {
			t.leader = a.member.ID
		}
	}
	t.f.Machines = append(t.f.Machines, a.m)
	t.views = append(t.views, a.view)
}
