// Package talos is the only door to a machine's Talos API: it dials, sets deadlines, and turns what comes back into its own
// types and error classes. It must never decide anything, and never know of Kubernetes: who may be reset is asked elsewhere.
//
// Every call goes straight to the machine that it is about. Nothing is ever proxied through another machine (no node
// metadata is sent), because a proxied call can reach another machine than the one that was meant, and loses its answer
// when the machine in between goes away.
package talos
