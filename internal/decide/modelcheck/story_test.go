package modelcheck

import "fmt"

// A verb is what a move does, for stories.
type verb uint8

const (
	looks verb = 1 + iota
	does
	marks
	crashes

	leaves
	leaveEnds
	isWiped
	isConfigured
	joins
	isPromoted
	catchesUp
	expires

	boots
	etcdStarts
	isHeard
	getsItsAddress
	tellsAlarms

	goesDown
	dies
	comesBack
	etcdStops
	isUnheard
	losesStatus
	leaveFails
	isLocked
	rebootsUnwiped
	isWipedByHand
	losesAddress
	givesAddress
	deletesLease
	raisesAlarm
	hidesAlarms

	isDeleted
	isPruned
	isChanged
	isApproved
	isGivenUp
	setsCount
	takesDown

	allows
	setsPolicy
	accepts
	putsDeleteBack
	removesByHand
	isDeclared
	uncordons
	disarms

	chooses
	writesDown
	bootstraps
	writesAnswer
	begins
	isSeen
	etcdFails
	etcdSticks
	isRebooted
	isRestored
)

// An action is a move without its outcome.
type action struct {
	verb             verb
	replica, machine uint8
	step             step
	reason           string
	failed, late     bool
}

func (a action) failing() action {
	a.failed = true
	return a
}

// on are the sentences of what happens to one machine.
var on = map[verb]string{
	leaves: "etcd removes the member of %s, which asked for it", leaveEnds: "the leave of %s ends without an effect",
	isWiped: "%s is wiped and blank", isConfigured: "%s gets its configuration", joins: "%s joins etcd as a learner", isPromoted: "%s becomes a voter",
	catchesUp: "%s catches up with etcd", boots: "%s boots", etcdStarts: "the etcd of %s comes back", isHeard: "%s answers again",
	getsItsAddress: "%s is back at its address", goesDown: "%s goes down", dies: "%s dies for good", comesBack: "%s, dead until now, comes back with its old data",
	etcdStops: "the etcd of %s stops", isUnheard: "%s does not answer us any more, but its peers", losesStatus: "the status of %s is lost",
	leaveFails: "the leave of %s fails", isLocked: "Talos answers OK to the reset of %s and does nothing", rebootsUnwiped: "the reset of %s fails and it boots with its configuration",
	isWipedByHand: "somebody wipes %s by hand", losesAddress: "a blank stranger gets the address of %s", givesAddress: "another machine of the cluster gets the address of %s",
	isDeleted: "kubectl delete %s, allowed", isPruned: "%s is pruned, allowed by nobody", isChanged: "%s is to get a configuration that needs a reboot",
	isApproved: "a person approves %s", isGivenUp: "a person takes Delete out of the management policies of %s",
	allows: "a person allows the deletion of %s", setsPolicy: "a person sets the policy RemoveMember for %s", accepts: "a person accepts that the disk of %s is not wiped",
	putsDeleteBack: "a person puts Delete back into the management policies of %s", isSeen: "the status of %s says that it is a member", uncordons: "a person uncordons the Node of %s", isDeclared: "a person declares %s again",
	begins: "%s begins an etcd", etcdFails: "the etcd that %s begins fails", etcdSticks: "the etcd that %s begins does not get any further than to prepare", isRebooted: "a person reboots %s",
	removesByHand: "a person removes the member of %s with talosctl",
}

// ofAll are the sentences of what happens to no machine alone.
var ofAll = map[verb]string{
	expires: "five minutes pass: the lock expires", deletesLease: "somebody deletes the Lease by hand", takesDown: "the TalosCluster is deleted, allowed",
	raisesAlarm: "etcd raises an alarm", hidesAlarms: "nobody tells the alarms of etcd any more", tellsAlarms: "the alarms of etcd are told again",
	disarms: "a person disarms the alarm of etcd", isRestored: "the annotations of the TalosCluster are restored from a backup, which knows no boot or another one",
}

// String is the action as a line of a story.
func (a action) String() string {
	who, name := string(rune('A'+a.replica)), fmt.Sprintf("cp-%d", a.machine+1)
	switch a.verb {
	case crashes:
		return fmt.Sprintf("replica %s is killed and starts again", who)
	case looks:
		switch {
		case a.step == 0:
			return fmt.Sprintf("replica %s looks at %s under the lock and waits: %s", who, name, a.reason)
		case a.reason != "":
			return fmt.Sprintf("replica %s looks at %s under the lock: %s, so it will %s", who, name, a.reason, a.step)
		}
		return fmt.Sprintf("replica %s looks at %s and decides: %s", who, name, a.step)
	case marks:
		return fmt.Sprintf("replica %s marks the lock of %s irreversible, for %s", who, name, a.step)
	case does:
		how := ""
		if a.failed {
			how = ", which fails or whose answer is lost"
		}
		if a.late {
			how = ", and one voter does not know of it yet"
		}
		return fmt.Sprintf("replica %s carries out on %s: %s%s", who, name, a.step, how)
	case chooses:
		return fmt.Sprintf("replica %s surveys the cluster and chooses %s", who, name)
	case writesDown:
		return fmt.Sprintf("replica %s writes down that %s is bootstrapped%s", who, name, map[bool]string{true: ", and is refused: somebody else did"}[a.failed])
	case bootstraps:
		return fmt.Sprintf("replica %s sends Bootstrap to %s%s", who, name, map[bool]string{true: ", which fails, or is killed right after it"}[a.failed])
	case writesAnswer:
		return fmt.Sprintf("replica %s writes down in which boot %s has answered%s", who, name, map[bool]string{true: ", and fails"}[a.failed])
	case setsCount:
		return fmt.Sprintf("the declared number of control planes is set to %d", a.machine)
	default: // The others have one sentence each.
	}
	if sentence, ok := ofAll[a.verb]; ok {
		return sentence
	}
	return fmt.Sprintf(on[a.verb], name)
}

// String is what is special about a world, for whoever has to find out why nothing moves in it.
func (w world) String() string {
	s := fmt.Sprintf("(lock %+v, passes %+v, leader %d, teardown %t, declared %d", w.lock, w.passes, w.leader, w.teardown, w.declared)
	for i, m := range w.machines {
		if m.born > 0 || m.declared {
			s += fmt.Sprintf("\n\t cp-%d %+v", i+1, m)
		}
	}
	return s + ")"
}
