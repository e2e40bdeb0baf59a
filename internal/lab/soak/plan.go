package soak

import (
	"fmt"
	"math/rand/v2"
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
	// CallOff takes Delete out of the management policies of a machine that is being deleted.
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
	// Kill ends the provider at once and starts another; Pause stops it for a while, as SIGSTOP does.
	Kill
	Pause
)

// actions are what events are drawn from, the likely ones more than once.
var actions = []Action{
	DeclareControlPlane, DeclareControlPlane, DeclareControlPlane, DeclareWorker, DeclareWorker, Approve, Approve, Approve, Approve, Approve,
	Delete, Delete, Delete, Delete, DeleteUnasked, CallOff, Relabel, Reconfigure, SetCount, Hold,
	Break, Break, Break, Break, Break, Cut, Kill, Kill, Pause,
}

// faults of machines that pass: what each does, the simulator tells.
var faults = []string{
	"api-down", "api-blackhole", "etcd-stopped", "etcd-leave-fails", "etcd-leave-hangs", "etcd-leave-ok-but-error", "etcd-leave-late",
	"etcd-members-differ", "etcd-no-promote", "etcd-join-interrupted", "reset-locked", "reset-fatal", "wipe-fails", "kubelet-slow-stop",
	"apply-fails", "proxy-lag", "kubernetes-down", "clock-behind", "time-unsynced",
}

var sizes = []int{1, 3, 5}

// An Event is one thing that is done in a campaign. What it is done to is drawn from those that there are by then.
type Event struct {
	// Number counts the events of a whole plan, from 1; it stays when others are taken out.
	Number int
	// At is when it is done, from the beginning of the campaign.
	At time.Duration
	Do Action
	// Pick chooses among the machines that it can be done to, by its remainder.
	Pick int
	// Fault is which one; of Break only.
	Fault string
	// For is how long it lasts; of Break, Cut, Kill, Pause and Hold.
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
	at := time.Duration(0)
	for {
		at += seconds(r, 1, 15)
		// Each event takes the same number of draws, so that no kind of event changes what follows.
		e := Event{
			Number: len(p.Events) + 1, At: at, Do: actions[r.IntN(len(actions))], Pick: r.IntN(1 << 16),
			Fault: faults[r.IntN(len(faults))], For: seconds(r, 2, 25), Count: sizes[r.IntN(len(sizes))],
		}
		if at > length {
			return p
		}
		p.Events = append(p.Events, e.plain())
	}
}

func seconds(r *rand.Rand, least, most int) time.Duration {
	return time.Duration(least+r.IntN(most-least+1)) * time.Second
}

// plain leaves out what means nothing for the action.
func (e Event) plain() Event {
	if e.Do != Break {
		e.Fault = ""
	}
	if e.Do != SetCount {
		e.Count = 0
	}
	switch e.Do {
	case Break, Cut, Kill, Pause, Hold:
	default:
		e.For = 0
	}
	return e
}

var verbs = map[Action]string{
	DeclareControlPlane: "declare a control plane", DeclareWorker: "declare a worker", Approve: "approve", Delete: "delete, with permission",
	DeleteUnasked: "delete, without permission", CallOff: "call the removal off", Relabel: "change labels", Reconfigure: "change what needs a reboot",
	SetCount: "declare the count", Hold: "hold the removal", Break: "fault", Cut: "cut the power", Kill: "kill -9 the provider", Pause: "stop the provider",
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
	return strings.Join(words, " ")
}
