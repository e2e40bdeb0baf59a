package modelcheck

import "github.com/maesh/provider-ichor/internal/decide/facts"

// rules are the product's, unless something in them is broken on purpose.
type rules struct {
	// show is what the decide packages get to see. A guard that is shown what it wants to see is a guard that does not
	// look. The product shows them what there is (nil).
	show func(f facts.Cluster, target facts.MachineID) facts.Cluster
	// broken is what the driver does wrong.
	broken blunder
}

// A blunder is one rule of the driver that is not kept.
type blunder uint8

const (
	_ blunder = iota
	// forgetsToReread does not read the lock again right before a call.
	forgetsToReread
	// forgetsToMark does not write down in the lock that there is only forward.
	forgetsToMark
	// forgetsToProve does not have the machine at the address prove its UUID.
	forgetsToProve
	// trustsOldPermits carries out what was decided however long ago.
	trustsOldPermits
	// retriesBlindly sends a call again without looking, since the answer to the first one may have been lost.
	retriesBlindly
	// locksForTheProcess takes the lock for the process and not for the object.
	locksForTheProcess
	// freesByExpiry lets anybody take a lock that has expired, even past the point of no return.
	freesByExpiry
	// leavesItCordoned steps aside without uncordoning.
	leavesItCordoned
	// callsOffTooLate lets a removal be called off past the point of no return.
	callsOffTooLate
	// resetsInsteadOfLeaving resets a control plane that should leave etcd first.
	resetsInsteadOfLeaving
	// skipsRecording acts at once where something is to be written down first.
	skipsRecording
	// rebootsWhenEven reboots while the number of control planes is even.
	rebootsWhenEven
)
