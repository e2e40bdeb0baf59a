package modelcheck

import (
	"fmt"
	"strings"

	"github.com/maesh/provider-ichor/internal/decide/bootstrap"
	"github.com/maesh/provider-ichor/internal/decide/facts"
	"github.com/maesh/provider-ichor/internal/decide/story"
)

// founders is how many control planes wait for an etcd.
const founders = 3

// A founder is a control plane before and after etcd was begun. cluster is which etcd its data is of, counted from 1; zero
// is none. seen is true once its status says that it was a member. told is true while Talos has in memory that it is to begin
// an etcd, and has not, and stuck while it does not come to that; down is true if its etcd has failed or was stopped. A boot ends
// all three.
type founder struct {
	configured, heard, seen bool
	told, stuck, down       bool
	cluster                 uint8
}

// serves tells whether its etcd runs.
func (m *founder) serves() bool { return m.cluster != 0 && !m.down }

// A founding is one replica's pass: what it is about to do with which machine.
type founding struct {
	machine uint8 // Plus one; zero is no pass.
	step    foundingStep
	// saw is the record that there was at the look, if it is to write down another one.
	saw uint8
	// stale is true once it is too late to send.
	stale bool
	// booted is true if the machine that has answered has booted since then.
	booted bool
}

// A foundingStep is what a pass does next.
type foundingStep uint8

const (
	records foundingStep = 1 + iota
	sends
	recordsAnswer
)

// oldBoot is what is written down of a boot that no machine is in any more.
const oldBoot = founders + 1

// A dawn is a cluster whose etcd is not begun yet, or just is.
type dawn struct {
	machines [founders]founder
	passes   [2]founding
	// record is the machine that Bootstrap was written down for, plus one.
	record uint8
	// answered is the machine plus one whose present boot is written down as the one that it has answered in, or oldBoot.
	answered uint8
	lock     lease
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
	forgetsTheAnswer
	recordsBeforeSending
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
	if w.answered != 0 && d.broken != forgetsTheAnswer {
		f.BootstrapBoot = bootOf(w.answered - 1)
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
		case !m.serves():
			o.Live = facts.Of(facts.Live{Mode: facts.Configured, UUID: uuids[i], BootID: facts.Of(bootOf(i)), Stage: "booting", EtcdService: facts.Of(m.service())})
		default:
			o.Live = facts.Of(facts.Live{Mode: facts.Configured, UUID: uuids[i], Stage: "running", EtcdService: facts.Of("Running"), Member: facts.Of(memberID(i, 1))})
			f.Etcd.Views = append(f.Etcd.Views, facts.View{Machine: o.ID, Self: memberID(i, 1), Healthy: facts.Of(true), Leader: memberID(i, 1), Term: 1,
				Members: facts.Of([]facts.Member{{ID: memberID(i, 1), Name: names[i]}})})
		}
		f.Machines = append(f.Machines, o)
	}
	return f
}

// bootOf is the ID of the boot that a machine is in; that of none is one that was.
func bootOf(i uint8) string { return fmt.Sprintf("boot-%d", i) }

// service is the state of an etcd service that runs no etcd. Talos does not say whether it waits for an etcd or begins one.
func (m *founder) service() string {
	switch {
	case !m.down:
		return "Preparing"
	case m.cluster != 0:
		return "Finished"
	}
	return "Failed"
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
	d.help(w, f)
	if w.faults > 0 {
		d.fail(w, f)
	}
	return w.clusters > 0 && w.passes == [2]founding{} && (w.living() == 0 || w.serving() != 0)
}

// help is what a person does who reads what the bootstrap waits for.
func (d dawns) help(w dawn, f func(move[dawn])) {
	wait, ok := bootstrap.Next(d.facts(&w)).(bootstrap.Wait)
	if !ok || !strings.Contains(wait.Message, "reboot the machine") {
		return
	}
	for i := range uint8(founders) {
		if strings.Contains(wait.Message, names[i]) {
			n := w
			n.boots(i)
			f(move[dawn]{to: n, did: action{verb: isRebooted, machine: i}, class: help, broken: n.judge()})
		}
	}
}

// boots has a machine forget what it was told. It starts its etcd if that has data, and else looks for one to join.
func (w *dawn) boots(i uint8) {
	m := &w.machines[i]
	m.told, m.stuck, m.down = false, false, false
	if w.answered == i+1 {
		w.answered = oldBoot
	}
	for r := range w.passes {
		if p := &w.passes[r]; p.step == recordsAnswer && p.machine == i+1 {
			p.booted = true
		}
	}
	w.slow()
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
	if w.record != 0 && w.record != i+1 && d.broken != forgetsItsRecord {
		return // The controller never sends it to another one.
	}
	n.passes[r] = founding{machine: i + 1, saw: w.record, step: records}
	if w.record != 0 || d.broken == sendsBeforeRecording {
		n.passes[r].step, n.passes[r].saw = sends, 0
	}
	var again violation
	if w.answered == i+1 && d.broken != forgetsItsRecord { // Whose it is that has answered is another question.
		again = violation{"2", "Bootstrap is to be sent once more in a boot in which it was answered"}
	}
	f(move[dawn]{to: n, did: action{verb: chooses, replica: r, machine: i}, class: product, broken: again})
}

// goOn writes down, or sends.
func (d dawns) goOn(w dawn, r uint8, f func(move[dawn])) {
	p := w.passes[r]
	i := p.machine - 1
	n := w
	n.passes[r] = founding{}
	if n.lock.session == r+1 {
		n.lock = lease{} // Given back at the end of the pass.
	}
	did := action{verb: writesDown, replica: r, machine: i}
	switch {
	case p.step == sends:
		d.send(w, n, r, f)
		return
	case p.step == recordsAnswer:
		did.verb = writesAnswer
		f(move[dawn]{to: n, did: did.failing(), class: fault})
		if n.answered = i + 1; p.booted {
			n.answered = oldBoot
		}
	case w.record == p.saw: // Else somebody wrote in between, and the API server refuses.
		n.record, n.answered = i+1, 0
	default:
		did = did.failing()
	}
	f(move[dawn]{to: n, did: did, class: product, broken: n.judge()})
}

// send calls the machine of a pass. n is the world in which the pass has ended without any effect.
func (d dawns) send(w, n dawn, r uint8, f func(move[dawn])) {
	p := w.passes[r]
	i := p.machine - 1
	was := w.machines[i]
	did := action{verb: bootstraps, replica: r, machine: i}
	if holds := w.lock.holder != 0 && w.lock.session == r+1; p.stale || !holds || !was.heard || !was.configured {
		f(move[dawn]{to: n, did: did.failing(), class: product})
		return
	}
	if d.broken == recordsBeforeSending {
		n.answered = i + 1
		f(move[dawn]{to: n, did: did.failing(), class: fault, broken: n.judge()}) // The process may die before it sends.
	}
	n.sent |= bit(i)
	m := &n.machines[i]
	if was.cluster == 0 {
		m.told, m.down = true, false
		n.lock = w.lock
		n.passes[r] = p
		n.passes[r].step = recordsAnswer
	}
	if d.broken == sendsBeforeRecording {
		unwritten := n // The process may die before it writes.
		unwritten.passes[r] = founding{}
		f(move[dawn]{to: unwritten, did: did.failing(), class: fault, broken: unwritten.judge()})
		n.record = i + 1
	}
	f(move[dawn]{to: n, did: did, class: product, broken: n.judge()})
	if was.told && !was.stuck { // The etcd that the first call began has written its data by then, and is stopped.
		n.clusters++
		m.cluster, m.told, m.down = n.clusters, false, true
		n.passes[r], n.lock = founding{}, lease{}
		f(move[dawn]{to: n, did: did.failing(), class: fault, broken: n.judge()})
	}
}

// judge holds a world against I9.
func (w *dawn) judge() violation {
	switch {
	case w.sent&(w.sent-1) != 0:
		return violation{"I9", "Bootstrap was sent to two machines"}
	case w.apart():
		return violation{"I9", "two etcds of one cluster live side by side"}
	case w.answered != 0 && w.answered != oldBoot && w.machines[w.answered-1].waits():
		return violation{"2", "it is written down that a machine has answered which was told nothing in this boot"}
	}
	return violation{}
}

// waits tells whether a machine waits for somebody else to begin an etcd.
func (m *founder) waits() bool { return m.cluster == 0 && !m.told && !m.down }

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
		case m.told && !m.stuck:
			n.clusters++
			did.verb, m.cluster, m.told = begins, n.clusters, false
			f(move[dawn]{to: n, did: did, class: settle, broken: n.judge()}) // It may do so within one pass.
			continue
		case m.waits() && w.serving() != 0:
			did.verb, m.cluster = joins, w.serving()
		case m.serves() && !m.seen:
			did.verb, m.seen = isSeen, true
		default:
			continue
		}
		if n != w {
			n.slow()
			f(move[dawn]{to: n, did: did, class: settle, broken: n.judge()})
		}
	}
}

// serving is the etcd that a machine joins, or zero if none runs.
func (w *dawn) serving() uint8 {
	var of uint8
	for _, m := range w.machines {
		if m.serves() {
			of = max(of, m.cluster)
		}
	}
	return of
}

// living is the etcd of which a machine has data, or zero.
func (w *dawn) living() uint8 {
	var of uint8
	for _, m := range w.machines {
		of = max(of, m.cluster)
	}
	return of
}

func (w *dawn) slow() {
	for r := range w.passes {
		w.passes[r].stale = w.passes[r].step == sends
	}
}

func (d dawns) fail(w dawn, f func(move[dawn])) {
	for _, boot := range []uint8{0, oldBoot} { // The backup is from before the answer, or from before a boot.
		if n := w; w.answered != boot {
			n.answered = boot
			n.faults--
			n.slow()
			f(move[dawn]{to: n, did: action{verb: isRestored}, class: fault, broken: n.judge()})
		}
	}
	for i := range uint8(founders) {
		for _, v := range []verb{isUnheard, losesStatus, etcdFails, etcdSticks, boots, isWipedByHand} {
			n := w
			switch m := &n.machines[i]; v {
			case isUnheard:
				m.heard = false
			case losesStatus:
				m.seen = false
			case etcdFails:
				m.told, m.stuck, m.down = false, false, m.told || m.down
			case etcdSticks:
				m.stuck = m.told
			case boots:
				n.boots(i)
			default:
				m.configured, m.cluster = false, 0
				n.boots(i)
			}
			if n != w {
				n.faults--
				n.slow()
				f(move[dawn]{to: n, did: action{verb: v, machine: i}, class: fault, broken: n.judge()})
			}
		}
	}
}
