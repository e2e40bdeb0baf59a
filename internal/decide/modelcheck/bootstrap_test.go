package modelcheck

import (
	"fmt"

	"github.com/maesh/provider-ichor/internal/decide/bootstrap"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/decide/story"
)

// founders is how many control planes wait for an etcd.
const founders = 3

// A founder is a control plane before and after etcd was begun. cluster is which etcd its data is of, counted from 1; zero
// is none. seen is true once its status says that it was a member.
type founder struct {
	configured, heard, seen bool
	cluster                 uint8
}

// A founding is one replica's pass: what it is about to do with which machine, and what record it saw.
type founding struct {
	machine uint8 // Plus one; zero is no pass.
	sends   bool
	saw     uint8
	stale   bool
}

// A dawn is a cluster whose etcd is not begun yet, or just is.
type dawn struct {
	machines [founders]founder
	passes   [2]founding
	// record is the machine that Bootstrap was written down for, plus one.
	record uint8
	lock   lease
	// clusters is how many etcds were begun; sent are the machines that Bootstrap was sent to.
	clusters, sent uint8
	faults         uint8
}

// dawns is the system of dawns.
type dawns struct {
	faults uint8
	broken dawnBlunder
}

// A dawnBlunder is one rule of the bootstrap that is not kept.
type dawnBlunder uint8

const (
	takesSilentForBlank dawnBlunder = 1 + iota
	sendsBeforeRecording
	forgetsItsRecord
)

func (d dawns) begin() dawn {
	var w dawn
	for i := range w.machines {
		w.machines[i].heard = true
	}
	w.faults = d.faults
	return w
}

// canon is the world itself: the first by name is chosen, so no two machines are alike.
func (d dawns) canon(w dawn) dawn { return w }

func (d dawns) why(w dawn) []string {
	return []string{fmt.Sprintf("(%+v: %+v)", w, bootstrap.Next(d.facts(&w)))}
}

// facts are what a survey finds.
func (d dawns) facts(w *dawn) facts.Cluster {
	f := facts.Cluster{Name: "prod", TakenAt: story.TakenAt, Declared: facts.Of(founders), Etcd: facts.Etcd{Alarms: facts.Unknown[[]facts.Alarm]("nobody told")}}
	if w.record != 0 && d.broken != forgetsItsRecord {
		f.Bootstrapped = uuids[w.record-1]
	}
	for i := range uint8(founders) {
		m := w.machines[i]
		o := facts.Machine{ID: facts.MachineID(ids[i]), Name: names[i], Role: facts.ControlPlane, Address: names[i], Approved: true, UUID: uuids[i]}
		if m.seen {
			o.LastMember = memberID(i, 1)
		}
		switch {
		case !m.heard && d.broken != takesSilentForBlank:
			o.Live = facts.Unknown[facts.Live]("no answer")
		case !m.heard, !m.configured:
			o.Live = facts.Of(facts.Live{Mode: facts.Maintenance, UUID: uuids[i], Stage: "maintenance"})
		case m.cluster == 0:
			o.Live = facts.Of(facts.Live{Mode: facts.Configured, UUID: uuids[i], Stage: "running", EtcdService: facts.Of("Preparing")})
		default:
			o.Live = facts.Of(facts.Live{Mode: facts.Configured, UUID: uuids[i], Stage: "running", EtcdService: facts.Of("Running"), Member: facts.Of(memberID(i, 1))})
			f.Etcd.Views = append(f.Etcd.Views, facts.View{Machine: o.ID, Self: memberID(i, 1), Healthy: facts.Of(true), Leader: memberID(i, 1), Term: 1,
				Members: facts.Of([]facts.Member{{ID: memberID(i, 1), Name: names[i]}})})
		}
		f.Machines = append(f.Machines, o)
	}
	return f
}

func (d dawns) moves(w dawn, f func(move[dawn])) bool {
	for r := range uint8(2) {
		if w.passes[r].machine == 0 {
			d.look(w, r, f)
		} else {
			d.goOn(w, r, f)
		}
		n := w
		n.passes[r] = founding{}
		if n.lock.session == r+1 {
			n.lock.session = 0
		}
		if n != w {
			f(move[dawn]{to: n, did: action{verb: crashes, replica: r}, class: fault})
		}
	}
	d.settle(w, f)
	if w.faults > 0 {
		d.fail(w, f)
	}
	return w.clusters > 0 && w.passes == [2]founding{}
}

// look takes the lock, surveys and decides.
func (d dawns) look(w dawn, r uint8, f func(move[dawn])) {
	send, due := bootstrap.Next(d.facts(&w)).(bootstrap.Send)
	if !due {
		return
	}
	n := w
	n.lock = lease{holder: 1, session: r + 1, irreversible: w.lock.irreversible}
	i := uint8(0)
	for ; ids[i] != string(send.Machine); i++ {
	}
	p := founding{machine: i + 1, saw: w.record, sends: w.record != 0 || d.broken == sendsBeforeRecording}
	if w.record != 0 && w.record != i+1 && d.broken != forgetsItsRecord {
		return // The controller never sends it to another one.
	}
	n.passes[r] = p
	f(move[dawn]{to: n, did: action{verb: chooses, replica: r, machine: i}, class: product})
}

// goOn writes down, or sends.
func (d dawns) goOn(w dawn, r uint8, f func(move[dawn])) {
	p := w.passes[r]
	i := p.machine - 1
	m := &w.machines[i]
	n := w
	n.passes[r] = founding{}
	holds := w.lock.holder != 0 && w.lock.session == r+1
	did := action{verb: writesDown, replica: r, machine: i}
	switch {
	case !p.sends:
		if w.record == p.saw { // Else somebody wrote in between, and the API server refuses.
			n.record = i + 1
		} else {
			did = did.failing()
		}
	case p.stale, !holds, !m.heard, !m.configured:
		did.verb, did.failed = bootstraps, true
	default:
		did.verb = bootstraps
		n.sent |= bit(i)
		if m.cluster == 0 {
			n.clusters++
			n.machines[i].cluster = n.clusters
		}
		if d.broken == sendsBeforeRecording {
			n.record = i + 1
		}
		if w.record == 0 { // The process may die before it writes.
			unwritten := n
			unwritten.record = 0
			f(move[dawn]{to: unwritten, did: did.failing(), class: fault, broken: n.judge()})
		}
	}
	if n.lock.session == r+1 {
		n.lock = lease{} // Given back at the end of the pass.
	}
	f(move[dawn]{to: n, did: did, class: product, broken: n.judge()})
}

// judge holds a world against I9.
func (w *dawn) judge() violation {
	switch {
	case w.sent&(w.sent-1) != 0:
		return violation{"I9", "Bootstrap was sent to two machines"}
	case w.apart():
		return violation{"I9", "two etcds of one cluster live side by side"}
	}
	return violation{}
}

// apart tells whether machines have data of different etcds.
func (w *dawn) apart() bool {
	var of uint8
	for _, m := range w.machines {
		if m.cluster != 0 && of != 0 && m.cluster != of {
			return true
		}
		of = max(of, m.cluster)
	}
	return false
}

// settle is what machines do by themselves: they get their configuration, and join an etcd that there is.
func (d dawns) settle(w dawn, f func(move[dawn])) {
	for i := range uint8(founders) {
		n := w
		m := &n.machines[i]
		did := action{machine: i}
		switch {
		case !m.heard:
			did.verb, m.heard = isHeard, true
		case !m.configured:
			did.verb, m.configured = isConfigured, true
		case m.cluster == 0 && w.clusters > 0:
			did.verb, m.cluster = joins, w.living()
		case m.cluster != 0 && !m.seen:
			did.verb, m.seen = isSeen, true
		default:
			continue
		}
		if n != w {
			n.slow()
			f(move[dawn]{to: n, did: did, class: settle})
		}
	}
}

// living is the etcd that a machine joins: the one of those who have one.
func (w *dawn) living() uint8 {
	var of uint8
	for _, m := range w.machines {
		of = max(of, m.cluster)
	}
	return of
}

func (w *dawn) slow() {
	for r := range w.passes {
		w.passes[r].stale = w.passes[r].machine != 0
	}
}

func (d dawns) fail(w dawn, f func(move[dawn])) {
	for i := range uint8(founders) {
		for _, v := range []verb{isUnheard, losesStatus, isWipedByHand} {
			n := w
			switch m := &n.machines[i]; v {
			case isUnheard:
				m.heard = false
			case losesStatus:
				m.seen = false
			default:
				m.configured, m.cluster = false, 0
			}
			if n != w {
				n.faults--
				n.slow()
				f(move[dawn]{to: n, did: action{verb: v, machine: i}, class: fault})
			}
		}
	}
}
