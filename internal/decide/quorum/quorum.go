// Package quorum is the arithmetic of votes: how many voters decide, how many may fail, and what people do about a bad number
// of them. It must never count anything itself, nor know what a voter is.
package quorum

// Majority is how many of n voters must serve for etcd to serve.
func Majority(n int) int { return n/2 + 1 }

// Tolerance is how many of n voters may fail while etcd goes on serving. It is zero if there are no voters.
func Tolerance(n int) int { return max(n-Majority(n), 0) }

// Holds tells whether etcd serves with so many of its voters up. No voters are no quorum.
func Holds(up, voters int) bool { return up >= Majority(voters) }

// WayToOdd says what a person does about an even number of control planes. Of two neither can be removed, because a quorum of
// two needs both: who has no machine for a third has only the way that passes by this provider.
func WayToOdd(approved int) string {
	if approved == 2 {
		return "Approve another one: of two neither can be removed, because a quorum of 2 needs both. If there is no machine for it, " +
			"take Delete out of spec.managementPolicies of one, delete it, and take its machine out by hand with talosctl reset --graceful --reboot"
	}
	return "Remove a control plane (to go back down) or approve another one (to go up)"
}
