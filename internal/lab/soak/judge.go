package soak

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/maesh/provider-ichor/internal/lab"
)

// Methods of the Talos API that disturb or destroy, and those that only begin something.
const (
	callBootstrap = "/machine.MachineService/Bootstrap"
	callApply     = "/machine.MachineService/ApplyConfiguration"
	callForfeit   = "/machine.MachineService/EtcdForfeitLeadership"
	callLeave     = "/machine.MachineService/EtcdLeaveCluster"
	callRemove    = "/machine.MachineService/EtcdRemoveMemberByID"
	callReset     = "/machine.MachineService/Reset"
	callReboot    = "/machine.MachineService/Reboot"
)

const (
	// hindsight is how old what a caller knew of etcd may be when its call arrives, on two cores that everything shares.
	hindsight = 10 * time.Second
	// aftermath is how long etcd may take to come back after a fault that took members of it down has passed.
	aftermath = 60 * time.Second
	// remembered is how many looks are kept: many more than fit into hindsight.
	remembered = 1000
)

// A look is what etcd told of itself at one time, machine by machine, and what Kubernetes told of its Nodes.
type look struct {
	begun, ended time.Time
	views        []view
	// last is the list that was told last, if nobody tells one now: those that are all down are still voters.
	last []member
	// cordoned are the control planes whose Nodes take no pods.
	cordoned []string
	// stages are what machines show on their consoles.
	stages map[string]string
}

// A view is what the etcd of one machine told. One that is slow to answer has told nothing, and may be healthy.
type view struct {
	machine string
	// up is false if nothing listens, or if what listens has no leader. It is meaningless unless known.
	up, known bool
	// members are those that it lists, as of an index of the log; none if it did not tell.
	members []member
	index   uint64
}

// A member is one line of a list.
type member struct {
	id uint64
	// machine is where it is, by its address.
	machine string
	learner bool
}

// A Violation is a rule that was broken.
type Violation struct {
	At time.Time
	// Rule is the number of an invariant of the design, or a word.
	Rule string
	Text string
}

func (v Violation) String() string { return v.Rule + ": " + v.Text }

// A period is some time.
type period struct{ from, to time.Time }

// A judge holds what was seen against the rules. It knows what was asked for and what was broken on purpose, and nothing else.
type judge struct {
	looks    []look
	pending  []lab.RPC // destructive calls after which etcd was not looked at yet
	approved map[string]bool
	founders map[string]bool // to which Bootstrap was sent
	// paused is when the provider was stopped, and hurt when members of etcd were taken down on purpose.
	paused, hurt []period
	// running counts the providers that run, and absent is when none did.
	running int
	absent  []period
	quiet   time.Time // since when nobody wants anything; zero before
	// patience is how long a quorum may seem to be lost before that counts: members that choose a leader have none for a moment,
	// the longer the less there is to run them on. short is since when it seems so; zero if it does not.
	patience time.Duration
	short    time.Time
	// tenures of the lock since it is followed, and owners the machines that holders of it are declared at.
	tenures  []tenure
	owners   map[string]string
	followed time.Time
	// latest is how long after its lock was lost a call came that was let pass.
	latest time.Duration
	// unwiped are machines that took a configuration on since they were last reset, and endings those of removals.
	// applied is when a configuration was last sent to a machine.
	unwiped map[string]bool
	applied map[string]time.Time
	endings []ending
	found   []Violation
	judged  int
}

func newJudge() *judge {
	return &judge{running: 1, approved: map[string]bool{}, founders: map[string]bool{}, owners: map[string]string{}, unwiped: map[string]bool{}, applied: map[string]time.Time{}}
}

func (j *judge) breakf(at time.Time, rule, format string, args ...any) {
	j.found = append(j.found, Violation{At: at, Rule: rule, Text: fmt.Sprintf(format, args...)})
}

// hear judges calls in the order of their arrival. Those that could harm etcd are judged when it was looked at once more.
func (j *judge) hear(calls []lab.RPC) {
	for _, c := range calls {
		if !c.Mutating || len(c.Forwarded) > 0 {
			continue // What was passed on shows again where it arrived.
		}
		j.judged++
		j.configured(c)
		if !j.approved[c.Machine] {
			j.breakf(c.Time, "approval", "%s was sent to %s, which nobody has approved", short(c.Method), c.Machine)
		}
		if !j.quiet.IsZero() && c.Time.After(j.quiet) {
			j.breakf(c.Time, "I8", "%s was sent to %s although nobody wants anything", short(c.Method), c.Machine)
		}
		switch c.Method {
		case callBootstrap:
			j.founders[c.Machine] = true
			if len(j.founders) > 1 {
				j.breakf(c.Time, "I9", "Bootstrap was sent to %s", strings.Join(slices.Sorted(maps.Keys(j.founders)), " and to "))
			}
		case callApply:
			if strings.Contains(c.Detail, "dry-run") {
				j.breakf(c.Time, "I8", "a dry run was sent to %s, which cancels a configuration on trial", c.Machine)
			}
		case callLeave, callRemove, callReset, callReboot, callForfeit:
			j.pending = append(j.pending, c)
		default:
			j.breakf(c.Time, "I8", "%s was sent to %s, which no request needs", short(c.Method), c.Machine)
		}
	}
}

// see takes a look, and judges it and what waited for it. It returns how many voters there are, and how many of them are up.
func (j *judge) see(l look) (voters, up int) {
	if n := len(j.looks); l.list() == nil && n > 0 {
		l.last = j.looks[n-1].list()
	}
	j.looks = append(j.looks, l)
	if extra := len(j.looks) - remembered; extra > 0 {
		j.looks = slices.Delete(j.looks, 0, extra)
	}
	if len(l.cordoned) > 1 {
		j.breakf(l.begun, "I3", "%s are cordoned at once", strings.Join(l.cordoned, " and "))
	}
	voters, up = l.count("", 0)
	switch {
	case up >= quorum(voters) || j.excused(j.hurt, l.begun, aftermath):
		j.short = time.Time{}
	case j.short.IsZero():
		j.short = l.begun
	}
	if !j.short.IsZero() && l.begun.Sub(j.short) >= j.patience {
		j.breakf(l.begun, "I1", "%d of %d voters are up although nothing was done to them, and a quorum needs %d", up, voters, quorum(voters))
	}
	j.pending = slices.DeleteFunc(j.pending, func(c lab.RPC) bool {
		if !l.begun.After(c.Time) {
			return false
		}
		j.underLock(c)
		if c.Method != callForfeit {
			j.keepsQuorum(c)
		}
		j.resetsStranger(c, l)
		return true
	})
	j.truly(l)
	return voters, up
}

// keepsQuorum holds I1 against a call: by no look that its sender can have had may it take a voter from a quorum that needs it.
func (j *judge) keepsQuorum(c lab.RPC) {
	machine, id := c.Machine, uint64(0)
	if c.Method == callRemove {
		machine = ""
		if _, err := fmt.Sscanf(c.Detail, "%x", &id); err != nil {
			j.breakf(c.Time, "I1", "a member with the unreadable ID %q was to be removed", c.Detail)
			return
		}
	}
	since := j.hindsight(c.Time, hindsight)
	worst := ""
	for _, l := range j.looks {
		if l.ended.Before(since) || l.begun.After(c.Time) {
			continue
		}
		victim, ok := l.voter(machine, id)
		if !ok {
			return // It takes no vote.
		}
		voters, up := l.count(victim.machine, victim.id)
		if c.Method == callLeave || c.Method == callRemove {
			voters-- // It is out of the list; otherwise it is only down.
		}
		if voters > 0 && up >= quorum(voters) {
			return
		}
		worst = fmt.Sprintf("%d of %d voters would have been up without %s, and a quorum needs %d", up, voters, victim.machine, quorum(max(voters, 1)))
	}
	if worst != "" {
		j.breakf(c.Time, "I1", "%s was sent to %s: %s", short(c.Method), c.Machine, worst)
	}
}

// resetsStranger holds I2 against a reset. A member that is gone from a list never comes back under its ID, so one that another
// voter listed before and lists after the call was listed when it came.
func (j *judge) resetsStranger(c lab.RPC, after look) {
	if c.Method != callReset {
		return
	}
	i := slices.IndexFunc(j.looks, func(l look) bool { return l.ended.After(c.Time) }) // The first that may have seen it.
	if i < 1 {
		return
	}
	before := j.looks[i-1]
	for _, v := range after.views {
		if v.machine == c.Machine {
			continue
		}
		for _, m := range v.members {
			if m.machine == c.Machine && before.listed(v.machine, m.id) {
				j.breakf(c.Time, "I2", "Reset was sent to %s, whose member %016x is still listed by %s", c.Machine, m.id, v.machine)
				return
			}
		}
	}
}

func (j *judge) excused(periods []period, at time.Time, longer time.Duration) bool {
	return slices.ContainsFunc(periods, func(s period) bool { return !at.Before(s.from) && at.Before(s.to.Add(longer)) })
}

// list is what the member that is furthest ahead lists.
func (l look) list() []member {
	var best view
	for _, v := range l.views {
		if len(v.members) > 0 && (len(best.members) == 0 || v.index > best.index) {
			best = v
		}
	}
	if len(best.members) == 0 {
		return l.last
	}
	return best.members
}

// voter finds the voter at a machine, or that with an ID if no machine is given.
func (l look) voter(machine string, id uint64) (member, bool) {
	for _, m := range l.list() {
		if !m.learner && (machine != "" && m.machine == machine || machine == "" && m.id == id) {
			return m, true
		}
	}
	return member{}, false
}

// count the voters, and those that are up besides one. What is not known to be down is up.
func (l look) count(besides string, id uint64) (voters, up int) {
	for _, m := range l.list() {
		if m.learner {
			continue
		}
		voters++
		down := slices.ContainsFunc(l.views, func(v view) bool { return v.machine == m.machine && v.known && !v.up })
		if !down && (besides == "" || m.machine != besides) && (id == 0 || m.id != id) {
			up++
		}
	}
	return voters, up
}

func (l look) listed(by string, id uint64) bool {
	return slices.ContainsFunc(l.views, func(v view) bool {
		return v.machine == by && slices.ContainsFunc(v.members, func(m member) bool { return m.id == id })
	})
}

// quorum of so many voters; nobody needs one of none.
func quorum(voters int) int {
	if voters == 0 {
		return 0
	}
	return voters/2 + 1
}

func short(method string) string { return method[strings.LastIndexByte(method, '/')+1:] }
