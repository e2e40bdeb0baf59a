// Package quorum is the arithmetic of votes: how many voters decide, and how many may fail. It must never count anything
// itself, nor know what a voter is.
package quorum

// Majority is how many of n voters must serve for etcd to serve.
func Majority(n int) int { return n/2 + 1 }

// Tolerance is how many of n voters may fail while etcd goes on serving. It is zero if there are no voters.
func Tolerance(n int) int { return max(n-Majority(n), 0) }

// Holds tells whether etcd serves with so many of its voters up. No voters are no quorum.
func Holds(up, voters int) bool { return up >= Majority(voters) }
