// Package clusterlock is a mutex between disruptions, kept in a Lease. It must never know what is disrupted.
//
// The holder is a piece of work on an object, not a process: a restarted process goes on with its own work at once, and
// two pieces of work in one process exclude each other. What keeps that safe:
//
//	who             writes or compares              what it stops
//	any write       resourceVersion                 two takers of one Lease
//	every taking    a new session in the Lease      an older process that still believes in the same work
//	a holder        renews every minute, and stops  acting on a Lease that may have expired: its clock starts before
//	                4 minutes after the last time   the write, and it does not read the wall clock
//	another taker   5 minutes after it first saw    taking a Lease that is alive: its clock starts after the write,
//	                the last write, by its own clock and the clock of the holder does not matter
//	Check           reads the Lease again           what the others missed, right before a call that cannot be undone
package clusterlock
