// Package topology is the composition function of a TalosTopology: it turns one document into a TalosCluster and its
// TalosMachines. It must never let a machine fall out of the desired state unless a person asked for its removal by name.
//
// Crossplane deletes what a function stops to desire, at once and without asking. So what is desired may only ever shrink
// on purpose, and everything else that could shrink it is kept out here:
//
//	the document  ── request.go ──► Facts ── decide.go, gate.go ──► Plan ── render.go, conditions.go ──► the response
//	what there is                   parsed, checked                pure                     objects, readiness, conditions
//
// A value that is missing or wrong makes the whole answer fatal: Crossplane then changes nothing at all.
//
// # How a removal flows
//
//	listed ──(vanishes from its list)──► kept, and said so
//	   └──(named in spec.removals)──► the gate ──► allow-delete is desired ──► seen on the object, gate still open ──► dropped
//	                                    │                                                                               │
//	                                    └ waits, and says for what                       deleted by Crossplane, removed by the
//	                                                                                     provider; in nobody's desired state
//
// The gate lets one removal through at a time, and only when no other machine is going, everything that was added has
// joined, enough control planes would be left, the cluster is settled and the provider's own guards would let the machine
// go (the condition Removable of the TalosMachine). It opens twice: for the annotation, and for the drop. In between it may
// close again, which takes the annotation back. The gate is there so that nothing is asked for in vain; the provider's
// guards have the last word.
//
// Once it is dropped, a machine is no longer among the observed resources. It is found by its label, through the
// resources that the function requires, until it is gone: meanwhile no other is let through.
package topology
