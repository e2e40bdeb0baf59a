package soak

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// An Action is what one event does.
type Action int

// The actions: what users ask for, and what goes wrong.
const (
	// DeclareControlPlane and DeclareWorker declare a blank machine that nobody has approved yet.
	DeclareControlPlane Action = 1 + iota
	DeclareWorker
	// Approve approves a machine that waits for it.
	Approve
	// Delete allows the deletion of a machine and asks for it; DeleteUnasked asks without, as a GitOps prune does.
	Delete
	DeleteUnasked
	// CallOff takes Delete out of the management policies of a machine that is being deleted. If none is, one is deleted first,
	// and its owner thinks better of it after a while.
	CallOff
	// Relabel changes the labels of a machine's Node, and Reconfigure what control planes run only after a reboot.
	Relabel
	Reconfigure
	// SetCount declares another number of control planes.
	SetCount
	// Hold holds the removal of a machine for a while.
	Hold

	// Break gives a machine a fault for a while, and Cut takes its power.
	Break
	Cut
	// Kill ends the provider at once and starts another; Pause stops it for a while, as SIGSTOP does. If that is for longer than
	// the lock lives, another one takes over soon, and is still there when the first one wakes.
	Kill
	Pause
	// Twin has a second provider work besides the first for a while.
	Twin
	// Outage stops the API server of the management cluster for a while, so that it accepts and never answers.
	Outage
	// Unlock deletes the Lease of the cluster by hand, and Steal has somebody else take it for a while.
	Unlock
	Steal
)

// actions are what events are dealt from, the likely ones more than once.
var actions = []Action{
	DeclareControlPlane, DeclareControlPlane, DeclareControlPlane, DeclareWorker, DeclareWorker, Approve, Approve, Approve, Approve, Approve,
	Delete, Delete, Delete, Delete, DeleteUnasked, CallOff, CallOff, Relabel, Reconfigure, Reconfigure, SetCount, Hold,
	Break, Break, Break, Break, Break, Break, Cut, Cut, Kill, Kill, Pause, Pause, Twin, Twin, Outage, Unlock, Steal, Steal,
}

// faults of machines that pass: what each does, the simulator tells.
var faults = []string{
	"api-down", "api-blackhole", "etcd-stopped", "etcd-leave-fails", "etcd-leave-hangs", "etcd-leave-ok-but-error", "etcd-leave-late",
	"etcd-members-differ", "etcd-no-promote", "etcd-join-interrupted", "reset-locked", "reset-fatal", "wipe-fails", "kubelet-slow-stop",
	"apply-fails", "proxy-lag", "kubernetes-down", "clock-behind", "time-unsynced",
}

var sizes = []int{1, 3, 5}

// How long things last: short, or for longer than the lock lives without its holder, which is five minutes. While the API server
// of the management cluster is away or a thief has the lock, nothing goes on, so there that is rare. A provider that is stopped for
// long is replaced, so there it comes in every other campaign, and first, so that it ends in it; in between, none can be killed.
var (
	brief   = span{2 * time.Second, 25 * time.Second}
	outlive = span{5*time.Minute + 20*time.Second, 6 * time.Minute}
	lengths = append(slices.Repeat([]span{brief}, 15), outlive)
	twins   = span{10 * time.Second, 40 * time.Second}
)

// A span is how long something may be, from the shortest to the longest.
type span struct{ least, most time.Duration }

func (s span) draw(r *rand.Rand) time.Duration {
	return s.least + time.Duration(r.IntN(int((s.most-s.least)/time.Second)+1))*time.Second
}

// delays are how long what lies in wait lets a job go on before it strikes, the short ones more often: so each step of a removal is
// struck now and then, and a job that is soon done as well.
var delays = []time.Duration{0, 0, 300 * time.Millisecond, 600 * time.Millisecond, time.Second, time.Second, 2 * time.Second, 3 * time.Second, 5 * time.Second, 8 * time.Second}

// A deck deals each of its cards once, in an order of chance, before it deals any of them again: so even a short campaign
// has some of everything.
type deck[T any] struct{ cards, left []T }

func (d *deck[T]) deal(r *rand.Rand) T {
	if len(d.left) == 0 {
		d.left = slices.Clone(d.cards)
		r.Shuffle(len(d.left), func(i, j int) { d.left[i], d.left[j] = d.left[j], d.left[i] })
	}
	top := d.left[0]
	d.left = d.left[1:]
	return top
}

// An Event is one thing that is done in a campaign. What it is done to is drawn from those that there are by then.
type Event struct {
	// Number counts the events of a whole plan, from 1; it stays when others are taken out.
	Number int
	// At is when it is done, from the beginning of the campaign.
	At time.Duration
	Do Action
	// Pick chooses among the machines that it can be done to.
	Pick uint64
	// Fault is which one; of Break only.
	Fault string
	// Midway has it lie in wait until a job that disturbs has held the lock for as long as After says, and strike then.
	Midway bool
	After  time.Duration
	// For is how long it lasts, or takes to come, as of CallOff; of what lasts only.
	For time.Duration
	// Count is the new number of control planes; of SetCount only.
	Count int
}

// A Plan is a campaign before it is run. The same seed makes the same plan, and a longer one begins with the shorter one.
type Plan struct {
	Seed uint64
	// Size is the number of control planes in the beginning: 1, 3 or 5.
	Size   int
	Events []Event
}

// NewPlan makes the plan of a seed, with events for the given time.
func NewPlan(seed uint64, length time.Duration) Plan {
	r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // It has to be the same again.
	p := Plan{Seed: seed, Size: sizes[r.IntN(len(sizes))]}
	does, breaks := deck[Action]{cards: actions}, deck[string]{cards: faults}
	lasts, stops := deck[span]{cards: lengths}, deck[span]{cards: []span{brief}}
	if seed%2 == 0 {
		stops.left = []span{outlive}
	}
	waits := deck[time.Duration]{cards: delays}
	between := span{time.Second, 11 * time.Second}
	thought := span{time.Second, 12 * time.Second} // About as long as a removal takes, to come before each of its steps.
	for at := between.draw(r); at <= length; at += between.draw(r) {
		e := Event{Number: len(p.Events) + 1, At: at, Do: does.deal(r), Pick: r.Uint64()}
		switch e.Do {
		case Break:
			e.Fault, e.For = breaks.deal(r), brief.draw(r)
		case SetCount:
			e.Count = sizes[r.IntN(len(sizes))]
		case Cut, Kill, Hold:
			e.For = brief.draw(r)
		case CallOff:
			e.For = thought.draw(r)
		case Twin:
			e.For = twins.draw(r)
		case Pause:
			e.For = stops.deal(r).draw(r)
		case Outage, Steal:
			e.For = lasts.deal(r).draw(r)
		default:
		}
		if e.Do >= Break && r.IntN(4) > 0 {
			e.Midway, e.After = true, waits.deal(r)
		}
		p.Events = append(p.Events, e)
	}
	return p
}

// Only is the plan with these events and no others.
func (p Plan) Only(numbers []int) Plan {
	p.Events = slices.DeleteFunc(slices.Clone(p.Events), func(e Event) bool { return !slices.Contains(numbers, e.Number) })
	return p.tight()
}

// longestGap is how long a plan that was shrunk may do nothing: longer than what a campaign leaves between two events, so
// that a cluster comes to the next one as it would have.
const longestGap = 20 * time.Second

// tight is the plan without the time in which those events were that have been taken out.
func (p Plan) tight() Plan {
	p.Events = slices.Clone(p.Events)
	var before, cut time.Duration
	for i, e := range p.Events {
		cut += max(0, e.At-before-longestGap)
		before = e.At
		p.Events[i].At -= cut
	}
	return p
}

var verbs = map[Action]string{
	DeclareControlPlane: "declare a control plane", DeclareWorker: "declare a worker", Approve: "approve", Delete: "delete, with permission",
	DeleteUnasked: "delete, without permission", CallOff: "call the removal off", Relabel: "change labels", Reconfigure: "change what needs a reboot",
	SetCount: "declare the count", Hold: "hold the removal", Break: "fault", Cut: "cut the power", Kill: "kill -9 the provider", Pause: "stop the provider",
	Twin:   "run a second provider",
	Outage: "stop the management API server", Unlock: "delete the Lease by hand", Steal: "steal the Lease",
}

// String is the event as a person would say it.
func (e Event) String() string {
	words := []string{verbs[e.Do]}
	if e.Fault != "" {
		words = append(words, e.Fault)
	}
	if e.Count > 0 {
		words = append(words, fmt.Sprint(e.Count))
	}
	if e.For > 0 {
		words = append(words, fmt.Sprintf("for %s", e.For))
	}
	if e.Midway {
		words = append(words, "midway")
	}
	return strings.Join(words, " ")
}
