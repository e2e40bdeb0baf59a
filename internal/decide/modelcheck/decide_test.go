package modelcheck

import (
	"fmt"
	"hash/maphash"
	"reflect"
	"strings"

	"github.com/maesh/provider-ichor/internal/decide/configchange"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/decide/removal"
)

// work is what a pass is for.
type work uint8

const (
	removing work = 1 + iota
	rebooting
	callingOff
)

// A step is what a pass does next: one that the product decided, or one of the controller's own.
type step uint8

// Steps that the product decides are numbered as there; those of a change follow those of a removal.
const (
	changeStep step = 16
	// stepAside uncordons and then gives the lock back; letGo only gives it back. Neither does so past the point of no
	// return. unlock gives it back at the end of a removal, and drop takes the finalizer off.
	stepAside step = 32 + iota
	letGo
	unlock
	drop
)

func (s step) String() string {
	switch s {
	case stepAside:
		return "Uncordon"
	case letGo, unlock:
		return "give the lock back"
	case drop:
		return "take the finalizer off"
	default:
		if s > changeStep {
			return configchange.Step(s - changeStep).String()
		}
		return removal.Step(s).String()
	}
}

// kinds of a verdict.
type kind uint8

const (
	act kind = 1 + iota
	wait
	refuse
	done
)

// A verdict is a decision of the product, of a removal or of a change, in one small shape.
type verdict struct {
	kind                kind
	step                step
	owner, member       uint8
	notesReset          bool
	forward             bool
	reason              string
	ways                ways
	nodeUnknown, parked bool
}

// ways are the ways out that a text names.
type ways uint16

const (
	wayWait ways = 1 << iota
	wayRepair
	wayApprove
	wayCount
	wayPolicy
	wayAccept
	wayOrphan
	wayAllow
	wayTeardown
	wayRemoveMember
	wayRestore
	wayAddress
	wayUncordon
	wayDeclare
	wayRemoveMachine
	wayDisarm
)

// phrases are how texts name a way out. A person who reads one knows what to do, and so does the model: it does nothing
// that it was not told.
var phrases = []struct {
	way  ways
	text string
}{
	{wayWait, "goes on by itself"}, {wayWait, "Wait until"}, {wayWait, "waiting until"}, {wayWait, "Waiting until"}, {wayWait, "This goes on when"},
	{wayRepair, "epair"}, {wayRepair, "see its console"}, {wayRepair, "Bring"}, {wayRepair, "look after the etcd"}, {wayRepair, "see its etcd"},
	{wayApprove, "pprove"}, {wayCount, "controlPlane.count"}, {wayPolicy, "unreachable.policy"}, {wayAccept, "accept-unwiped-disk"},
	{wayOrphan, "take Delete out"}, {wayAllow, "allow-delete"}, {wayTeardown, "delete its TalosCluster"},
	{wayRemoveMember, "talosctl etcd remove-member"}, {wayRestore, "restore etcd from a snapshot"}, {wayUncordon, "uncordon Node"}, {wayRemoveMachine, "remove its machine"}, {wayDeclare, "declare it if it is not declared"}, {wayDisarm, "disarm the alarm"},
	{wayAddress, "Correct spec.forProvider.address"},
}

func waysIn(text string) ways {
	var w ways
	for _, p := range phrases {
		if strings.Contains(text, p.text) {
			w |= p.way
		}
	}
	return w
}

// A judge asks the product, once for each thing that can be seen.
type judge struct {
	rules rules
	seed  maphash.Seed
	known map[uint64]verdict
	// wrong is a decision that no decision may be, once there was one.
	wrong violation
}

func newJudge(r rules) *judge {
	return &judge{rules: r, seed: maphash.MakeSeed(), known: map[uint64]verdict{}}
}

// A question is what a decision depends on: what can be seen of a world, and about which machine it is asked.
type question struct {
	world   world
	machine uint8
	work    work
}

// ask returns what the product decides about machine i.
func (j *judge) ask(w *world, i uint8, k work) verdict {
	q := question{world: *w, machine: i, work: k}
	q.world.passes, q.world.lock, q.world.leaveUp, q.world.tampered = [2]pass{}, lease{}, 0, false
	q.world.faults, q.world.deletes, q.world.edits = 0, 0, 0
	for n := range q.world.machines {
		q.world.machines[n].leaving, q.world.machines[n].dead, q.world.machines[n].orphaned = 0, false, false
	}
	h := maphash.Comparable(j.seed, q)
	v, ok := j.known[h]
	if !ok {
		v = j.decide(w, i, k)
		j.known[h] = v
	}
	return v
}

func (j *judge) decide(w *world, i uint8, k work) verdict {
	f, id := w.facts(), facts.MachineID(ids[i])
	if j.rules.show != nil {
		f = j.rules.show(f, id)
	}
	var d, again any
	switch k {
	case rebooting:
		c := w.machines[i].configOf()
		d, again = configchange.Next(f, id, c), configchange.Next(f, id, c)
	case callingOff:
		if removal.Irreversible(f, id) {
			return verdict{kind: refuse, forward: true, reason: "Irreversible"}
		}
		return verdict{kind: act, step: stepAside}
	case removing:
		d, again = removal.Next(f, id), removal.Next(f, id)
	}
	if !reflect.DeepEqual(d, again) {
		j.wrong = violation{"I12", fmt.Sprintf("the same facts gave %+v and %+v", d, again)}
	}
	v, text := summary(d)
	v.ways = waysIn(text)
	if (v.kind == wait || v.kind == refuse) && v.ways == 0 {
		j.wrong = violation{"I5", fmt.Sprintf("%s says no way out: %q", v.reason, text)}
	}
	if k == removing && v.kind == refuse && !v.forward {
		v.ways |= wayOrphan // The controller says so with every refusal of what may still be called off.
	}
	return v
}

// summary is a decision of the product as a verdict, and the text that goes with it.
func summary(d any) (verdict, string) {
	switch d := d.(type) {
	case removal.Act:
		v := verdict{kind: act, step: step(d.Step), notesReset: d.Record.Reset, forward: d.Irreversible}
		v.owner, v.member = named(d.Member)
		if d.Step == removal.Record {
			v.owner, v.member = named(d.Record.Member)
		}
		return v, d.Message
	case removal.Wait:
		return verdict{kind: wait, reason: string(d.Reason), forward: d.Irreversible}, d.Message
	case removal.Refuse:
		return verdict{kind: refuse, reason: string(d.Refusal.Reason), forward: d.Irreversible}, d.Refusal.Error()
	case configchange.Act:
		return verdict{kind: act, step: changeStep + step(d.Step)}, d.Message
	case configchange.Wait:
		v := verdict{kind: wait, reason: string(d.Reason)}
		v.parked = d.Reason == configchange.ClusterTransitioning
		v.nodeUnknown = d.Reason == configchange.NodeUnknown || d.Reason == configchange.ConfigUnknown || d.Reason == configchange.MachineUnreachable
		return v, d.Message
	case configchange.Refuse:
		return verdict{kind: refuse, reason: string(d.Refusal.Reason)}, d.Refusal.Error()
	}
	return verdict{kind: done}, ""
}
