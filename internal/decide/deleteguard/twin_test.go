package deleteguard

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/maesh/provider-ichor/internal/decide/facts"
)

// A health is what is known of a member's health.
type health int

const (
	yes health = iota
	no
	unknown
)

// An electorate is an etcd without anything odd about it: voters of some health and learners, each of one machine.
type electorate struct {
	health   []health
	learners int
}

func (m electorate) size() int { return len(m.health) + m.learners }

// cluster are the facts of an electorate. A member whose health is unknown did not answer.
func (m electorate) cluster() facts.Cluster {
	f := facts.Cluster{Name: "prod", Declared: facts.Of(0), Bootstrapped: "x", Etcd: facts.Etcd{Alarms: facts.Of[[]facts.Alarm](nil)}}
	members := make([]facts.Member, 0, m.size())
	for i := range m.size() {
		members = append(members, facts.Member{ID: facts.MemberID(100 + i), Name: fmt.Sprint(i), Learner: i >= len(m.health)})
	}
	for i, e := range members {
		id := facts.MachineID(fmt.Sprint(i))
		f.Machines = append(f.Machines, facts.Machine{ID: id, Name: fmt.Sprintf("cp-%d", i), Role: facts.ControlPlane, Approved: true, UUID: fmt.Sprint(i), LastMember: e.ID})
		if e.Learner || m.health[i] == unknown {
			continue
		}
		v := facts.View{Machine: id, Self: e.ID, Members: facts.Of(members), Term: 3, Healthy: facts.Of(m.health[i] == yes)}
		if m.health[i] == yes {
			v.Leader = leader(m.health)
		}
		f.Etcd.Views = append(f.Etcd.Views, v)
	}
	return f
}

func leader(hs []health) facts.MemberID {
	for i, h := range hs {
		if h == yes {
			return facts.MemberID(100 + i)
		}
	}
	return 0
}

func (m electorate) serving() int {
	n := 0
	for _, h := range m.health {
		if h == yes {
			n++
		}
	}
	return n
}

// mayGo is the rule as the design words it, for the loss of member v: the slow and obvious twin of CheckEtcd.
func (m electorate) mayGo(v int) bool {
	learner := v >= len(m.health)
	before, after, sick := len(m.health), len(m.health), 0
	for i, h := range m.health {
		if i != v && h != yes {
			sick++
		}
	}
	if !learner {
		after--
	}
	otherLearners := m.learners
	if learner {
		otherLearners--
	}
	return m.serving() >= before/2+1 &&
		after-sick >= after/2+1 &&
		otherLearners == 0 &&
		(sick == 0 || learner || m.health[v] != yes)
}

// mayReboot is the same for a member that is down for a while: the number of voters stays, and a learner must not be
// rebooted at all.
func (m electorate) mayReboot(v int) bool {
	if m.learners > 0 {
		return false
	}
	sick, serving := 0, m.serving()
	for i, h := range m.health {
		if i != v && h != yes {
			sick++
		}
	}
	if m.health[v] == yes {
		serving--
	}
	return m.serving() >= len(m.health)/2+1 && serving >= len(m.health)/2+1 && (sick == 0 || m.health[v] != yes)
}

// TestTwin asks about every electorate of up to seven voters of every health, with and without learners.
func TestTwin(t *testing.T) {
	asked, gone, rebooted := 0, 0, 0
	for n := 1; n <= 7; n++ {
		for code := range pow(3, n) {
			for learners := range min(3, 8-n) { // One is enough to tell for most.
				m := electorate{learners: learners}
				for c := range n {
					m.health = append(m.health, health(code/pow(3, c)%3))
				}
				f := m.cluster()
				for v := range m.size() {
					asked++
					id := facts.MachineID(fmt.Sprint(v))
					r := CheckEtcd(f, id)
					if got, want := r == nil, m.mayGo(v); got != want {
						t.Fatalf("voters %v, %d learners, member %d: may go %t, want %t: %v", m.health, learners, v, got, want, r)
					}
					b := CheckReboot(f, id)
					if got, want := b == nil, m.mayReboot(v); got != want {
						t.Fatalf("voters %v, %d learners, member %d: may reboot %t, want %t: %v", m.health, learners, v, got, want, b)
					}
					if r == nil {
						gone++
					}
					if b == nil {
						rebooted++
					}
				}
			}
		}
	}
	t.Logf("asked %d times: %d may go, %d may reboot", asked, gone, rebooted)
	if gone == 0 || rebooted == 0 || gone == asked || rebooted == asked {
		t.Error("the question was always answered in the same way")
	}
}

func pow(b, e int) int {
	p := 1
	for range e {
		p *= b
	}
	return p
}

// TestDoubtOnlyRefuses takes an electorate that may lose a member and puts any one fact of it in doubt, or makes it worse:
// whatever it is, nothing is let through because of it that was not before.
func TestDoubtOnlyRefuses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := electorate{learners: rapid.IntRange(0, 1).Draw(t, "learners")}
		for range rapid.IntRange(1, 7).Draw(t, "voters") {
			m.health = append(m.health, health(rapid.IntRange(0, 2).Draw(t, "health")))
		}
		v := rapid.IntRange(0, m.size()-1).Draw(t, "victim")
		victim := facts.MachineID(fmt.Sprint(v))
		f := m.cluster()
		before := CheckEtcd(f, victim)
		name, doubted := spoil(t, m.cluster(), victim)
		after := CheckEtcd(doubted, victim)
		if name == victimInDoubt && reasonOf(before) == OtherMemberUnhealthy {
			return // The sick ones go before the others, and this one may be one of them now.
		}
		if before != nil && after == nil {
			t.Fatalf("%s lets member %d of %v go, which was refused: %v", name, v, m.health, before)
		}
		if after == nil && mustRefuse[name] && len(doubted.Etcd.Views) > 0 {
			t.Fatalf("%s still lets member %d of %v go", name, v, m.health)
		}
	})
}

// mustRefuse are the doubts that leave nothing to be let through, of whatever kind the rest is.
var mustRefuse = map[string]bool{"unknown alarms": true, "an alarm": true, "a member of no machine": true, "no view": true}

// victimInDoubt is a doubt about the victim itself. It counts as one that does not serve then, as TestTwin holds.
const victimInDoubt = "unknown health of the victim"

// spoil changes one fact.
func spoil(t *rapid.T, f facts.Cluster, victim facts.MachineID) (string, facts.Cluster) {
	e := &f.Etcd
	stranger := facts.Member{ID: 999, Name: "gone"}
	switch rapid.IntRange(0, 7).Draw(t, "doubt") {
	case 0:
		e.Alarms = facts.Unknown[[]facts.Alarm]("timeout")
		return "unknown alarms", f
	case 1:
		e.Alarms = facts.Of([]facts.Alarm{{Member: 100, Name: "NOSPACE"}})
		return "an alarm", f
	case 2:
		for i, v := range e.Views {
			members, _ := v.Members.Get()
			e.Views[i].Members = facts.Of(append(append([]facts.Member(nil), members...), stranger))
		}
		return "a member of no machine", f
	case 3:
		e.Views = nil
		return "no view", f
	}
	if len(e.Views) == 0 {
		return "nothing", f
	}
	i := rapid.IntRange(0, len(e.Views)-1).Draw(t, "view")
	switch rapid.IntRange(0, 3).Draw(t, "what") {
	case 0:
		e.Views[i].Members = facts.Unknown[[]facts.Member]("timeout")
		return "an unknown list", f
	case 1:
		e.Views[i].Term++
		return "another term", f
	case 2:
		e.Views[i].Healthy = facts.Unknown[bool]("timeout")
		if e.Views[i].Machine == victim {
			return victimInDoubt, f
		}
		return "unknown health", f
	}
	members, _ := e.Views[i].Members.Get()
	e.Views[i].Members = facts.Of(append(append([]facts.Member(nil), members...), stranger))
	return "another list", f
}

// TestHealthyWithoutLeader is about facts that contradict themselves: a member that serves, and follows nobody.
func TestHealthyWithoutLeader(t *testing.T) {
	m := electorate{health: []health{yes, yes, yes, yes}}
	f := m.cluster()
	f.Etcd.Views[2].Leader = 0
	if got := reasonOf(CheckEtcd(f, "3")); got != NoLeader {
		t.Errorf("a voter without a leader: %q, want %q", got, NoLeader)
	}
}
